"""Measures of layers."""
