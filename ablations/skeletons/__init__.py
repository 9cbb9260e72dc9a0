"""First files to change: a shipped example, a spec for a text of one's own, a file of claims for a spec."""
