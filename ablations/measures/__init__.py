"""From a checkpoint to rows of the table."""
