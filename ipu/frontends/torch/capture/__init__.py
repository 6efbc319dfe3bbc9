"""Captured steps: a step of a program whose operations are noted, and run again without its Python."""
