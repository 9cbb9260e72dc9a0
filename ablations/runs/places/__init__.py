"""Runs on a cluster: jobs of SLURM and tasks of Ray."""
