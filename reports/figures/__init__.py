"""Figures of results: one file for each kind."""
