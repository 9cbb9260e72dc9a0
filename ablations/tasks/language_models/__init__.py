"""Scores of the language model itself: minimal pairs, parsing, generation."""
