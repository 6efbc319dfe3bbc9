"""Experiments: one file is one question, answered with a number and one figure.

An experiment is a module in a room (`sums`, `training`) with QUESTION, BUDGET (seconds), DEFAULT
(in the default report?), `run(quick, seed) -> Result` and `plot(result) -> Figure`. Nothing else
lists it: `lab.catalogue` finds it, `lab.runner` runs and stores it, `lab.report` shows it.

This is the only name of the code. In a checkout its files lie in the folder `experiments/` beside
`ipu/`, where no package of that name can shadow a user's own; in the wheel they lie here.
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parent

# The wheel holds the command line here; a checkout does not. So an installed package never looks at
# site-packages/experiments, which belongs to somebody else.
if not (_HERE / "cli.py").exists():
    __path__ = [str(_HERE.parents[1] / "experiments")]
