"""Labeled images alone: what every semi-supervised method must beat."""
