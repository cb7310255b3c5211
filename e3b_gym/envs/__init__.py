"""Environments by id; each suite is imported only when asked for."""
