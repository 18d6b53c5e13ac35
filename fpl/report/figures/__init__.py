"""Figures: the numbers behind each, its drawing, and the files that it is kept as."""
