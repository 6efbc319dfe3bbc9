"""Products rounded after every multiplication and addition."""
