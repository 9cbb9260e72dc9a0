"""Checks before anything is trained: of this machine, and of a text."""
