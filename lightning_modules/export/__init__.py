"""Trained runs as Hugging Face folders, which stock classes of transformers load."""
