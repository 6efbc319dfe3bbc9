"""The documents' listings as programs: where each stands, and our own words around it."""
