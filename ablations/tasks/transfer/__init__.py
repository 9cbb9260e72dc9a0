"""Heads and fine-tuning: what a trained head makes of the states."""
