"""Programs in processes: an unedited program, vendors' names, overlap of replicas, the end."""
