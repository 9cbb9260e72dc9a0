"""Text to token ids to packed batches."""
