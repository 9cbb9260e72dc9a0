"""Commands of `ablate`. Only they import all parts of the project, each inside the command that needs it."""
