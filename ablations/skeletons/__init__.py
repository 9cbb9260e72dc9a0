"""First files for a user to change: a shipped example, a spec for one's own text, a file of claims for a
spec."""
