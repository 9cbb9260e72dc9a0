"""Experiment specs and claims: what a person writes, read and checked."""
