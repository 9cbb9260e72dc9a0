"""What came out: statistics, figures, the page."""
