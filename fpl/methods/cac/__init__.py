"""Directional context-aware consistency (CAC)."""
