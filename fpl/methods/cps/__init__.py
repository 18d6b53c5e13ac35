"""Cross pseudo supervision (CPS), with and without CutMix."""
