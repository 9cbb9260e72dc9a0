"""Heads and fine-tuning: trained heads on the states."""
