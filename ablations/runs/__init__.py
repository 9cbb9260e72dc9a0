"""Runs on disk: planning, training, measuring and gathering them."""
