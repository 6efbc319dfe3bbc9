"""Machinery of experiments: catalogue, runner, results, figures, report."""
