"""Probes: what a simple classifier reads from frozen states."""
