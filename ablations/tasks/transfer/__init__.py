"""Trained heads on the states of an encoder, frozen or fine-tuned."""
