"""Page of an experiment, its tables and its twins in JSON and Markdown."""
