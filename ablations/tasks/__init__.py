"""Checkpoint -> scores: what the encoders are good for."""
