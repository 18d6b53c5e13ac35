"""Which runs are needed, and what carries them out."""
