"""Captured steps: operations of a step are noted, and run again without the program's Python."""
