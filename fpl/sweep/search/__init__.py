"""Searches: which trial is next, when one ends early, and what they may spend."""
