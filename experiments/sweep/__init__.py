"""Sweeps: one experiment with many seeds and settings, as jobs on Dask."""
