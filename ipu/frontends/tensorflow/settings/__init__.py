"""Settings of the simulated machine by the vendor's names: `IPUConfig` and the older functions."""
