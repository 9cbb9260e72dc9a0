"""Results: statistics, figures and the page."""
