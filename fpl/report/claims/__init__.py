"""The paper's sentences about its figures, checked on our runs."""
