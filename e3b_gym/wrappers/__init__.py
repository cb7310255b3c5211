"""Reward wrappers for Stable-Baselines3 and Gymnasium."""
