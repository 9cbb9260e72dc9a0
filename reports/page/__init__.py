"""Page of an experiment, its tables, and the same content as JSON and Markdown."""
