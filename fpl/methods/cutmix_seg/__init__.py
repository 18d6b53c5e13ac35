"""CutMix-Seg: a student that sees two images mixed, and an EMA teacher whose predictions are mixed alike."""
