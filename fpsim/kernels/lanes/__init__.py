"""Vectors of lanes: their type, arithmetic, memory, and formulas over them."""
