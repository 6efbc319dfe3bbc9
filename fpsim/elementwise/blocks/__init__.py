"""Quantisers of block-scaled numbers on carriers: scales by rule, elements, codes, values."""
