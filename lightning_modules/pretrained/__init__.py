"""Pre-trained models from elsewhere, from which a run can start."""
