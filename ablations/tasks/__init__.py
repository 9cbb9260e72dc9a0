"""Tasks that an encoder is tried on, and scores of language models."""
