"""Experiments: one file is one question, answered with a number and one figure.

An experiment is a module here with QUESTION, BUDGET (seconds), DEFAULT (in the default report?),
`run(quick, seed) -> Result` and `plot(result) -> Figure`. Nothing else has to be told about it:
`catalogue` finds it, `runner` runs and stores it, `report` shows it, `cli` is the command.
"""
