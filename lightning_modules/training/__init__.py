"""Training one run: the Trainer, checkpoints and resume."""
