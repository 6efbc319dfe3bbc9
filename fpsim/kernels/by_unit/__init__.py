"""Loops of matrix units."""
