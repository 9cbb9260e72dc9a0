"""Places other than this machine where runs are trained: the jobs of a cluster."""
