"""Loops of block-scaled numbers: largest magnitudes, codes of elements, Hadamard transforms."""
