"""PC2Seg: pixels that keep their prediction, and their place among features, under a strong view."""
