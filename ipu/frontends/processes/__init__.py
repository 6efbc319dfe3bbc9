"""Programs in several processes: vendors' names, sums over replicas, the end of a program."""
