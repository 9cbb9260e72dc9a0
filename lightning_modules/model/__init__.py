"""Encoder, decoder, attention and prediction heads."""
