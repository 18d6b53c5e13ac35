"""Adaptive equalization learning (AEL)."""
