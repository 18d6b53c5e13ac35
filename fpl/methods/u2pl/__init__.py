"""Semi-supervised segmentation using unreliable pseudo-labels (U2PL)."""
