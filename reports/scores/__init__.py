"""Scores of whole runs: tables and figures."""
