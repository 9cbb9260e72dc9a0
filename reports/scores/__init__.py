"""Tables and figures of scores of whole runs."""
