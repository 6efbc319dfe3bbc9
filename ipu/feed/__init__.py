"""Feeding a training: data sets from their original files, batches in a reproducible order."""
