"""The page, its tables and its twins in JSON and Markdown."""
