"""What a search found: frames, sentences, charts, and its page."""
