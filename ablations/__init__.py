"""What is varied, and what is measured."""
