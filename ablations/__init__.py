"""Ablations: experiment specs, their runs, the measures and the tasks."""
