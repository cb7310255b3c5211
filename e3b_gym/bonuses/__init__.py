"""Exploration bonuses as compositions of small terms."""
