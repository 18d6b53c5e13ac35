"""Adversarial learning for semi-supervised segmentation (AdvSemSeg)."""
