"""Text, tokens and the order in which a run sees them."""
