"""Rules on arrays that several frameworks need: sums by row, weighted neighbours, phases."""
