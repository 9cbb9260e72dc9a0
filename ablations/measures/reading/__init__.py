"""The validation text as tokens, labels, alignments and states."""
