"""Intervals, tests and power over seeds."""
