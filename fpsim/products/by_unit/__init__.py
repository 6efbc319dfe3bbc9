"""Products through matrix units: dispatch and engines."""
