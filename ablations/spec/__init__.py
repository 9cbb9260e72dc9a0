"""Experiment specs and files of claims: reading and checking what a user writes."""
