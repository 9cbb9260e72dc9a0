"""Ablations: experiment specs, their runs, their measures and their tasks."""
