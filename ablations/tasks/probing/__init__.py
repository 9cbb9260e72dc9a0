"""Probes: simple classifiers of frozen states."""
