"""Code that several test modules share: no tests."""
