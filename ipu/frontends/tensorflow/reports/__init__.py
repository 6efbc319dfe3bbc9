"""Where a node of a graph belongs for a reader: layers, directions, what is noted, the report."""
