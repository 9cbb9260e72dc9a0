"""Pre-trained models from elsewhere, as the start of a run."""
