"""The texts that measures read, as tokens, labels, alignments and states."""
