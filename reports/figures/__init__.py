"""Figures: one file for each kind."""
