"""Programs in several processes: vendors' names, sums over replicas, overlap, the programs' end."""
