"""Second opinions: the oracle, and the core against vectors and definitions."""
