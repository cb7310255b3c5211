"""Reward wrappers for Stable-Baselines3 (`sb3`) and Gymnasium (`gymnasium`)."""
