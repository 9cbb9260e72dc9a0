"""Statistics over seeds: intervals, tests and power."""
