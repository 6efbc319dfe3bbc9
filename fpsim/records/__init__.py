"""Frozen facts: formats, rounding modes, flags, settings, evidence, matrix units, geometry."""
