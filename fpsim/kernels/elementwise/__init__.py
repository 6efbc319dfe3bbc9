"""Loops of operations on elements."""
