"""Sums, matrix products and convolutions."""
