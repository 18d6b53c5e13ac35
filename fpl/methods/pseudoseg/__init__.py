"""PseudoSeg: soft pseudo-labels fused from a decoder and refined class activation maps."""
