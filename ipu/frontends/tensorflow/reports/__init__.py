"""Where a node of a graph belongs for a reader: layers, directions, what the run is told."""
