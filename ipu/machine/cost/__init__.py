"""Cycles and bytes by a declared model."""
