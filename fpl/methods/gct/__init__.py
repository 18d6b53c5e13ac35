"""Guided collaborative training: two networks, and a flaw detector that tells which of them is right at a pixel."""
