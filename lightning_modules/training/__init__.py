"""Training one run: the Trainer, checkpoints, resume and export."""
