"""Weak-to-strong consistency within one network: FixMatch for segmentation, and UniMatch."""
