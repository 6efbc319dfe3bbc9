"""Loops of sums and products rounded after every operation."""
