"""Claims: contrasts, the rule, and the verdicts."""
