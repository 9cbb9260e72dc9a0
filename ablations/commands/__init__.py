"""The commands of `ablate`; only they import everything, each when it is called."""
