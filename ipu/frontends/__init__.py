"""Front ends: programs of other frameworks on the simulated machine; each is an extra."""
