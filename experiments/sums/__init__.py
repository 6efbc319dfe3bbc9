"""Questions about sums and matrix units."""
