"""Mutual information between labels of tokens and states."""
