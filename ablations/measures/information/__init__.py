"""Mutual information between tokens and states."""
