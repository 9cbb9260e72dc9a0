"""Data: from text to token ids to packed batches."""
