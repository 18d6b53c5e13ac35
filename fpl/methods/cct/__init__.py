"""Cross-consistency training (CCT)."""
