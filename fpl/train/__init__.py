"""The training of one run: loop, checkpoints, evaluation. Knows nothing of Ray and nothing of the store."""
