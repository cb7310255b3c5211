"""Stable-Baselines3's PPO and our RecurrentPPO as agents of `make train`."""
