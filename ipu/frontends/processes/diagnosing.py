"""An unedited program diagnosed, under the front end whose run it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ipu.frontends.processes.programs import ProgramError, run_file, run_module
from ipu.run.budget import Budget
from ipu.run.diagnosis import Diagnosis
from ipu.run.run import Run

__all__ = ["diagnose_program"]


def diagnose_program(
    run: Run, program: Path | str, arguments: Sequence[str], steps: int | None = None,
    seconds: float = 60.0, tell: Callable[[Diagnosis], object] = id, spent: float = 0.0,
) -> Diagnosis:
    """What hurts the first steps of an unedited program; its output is thrown away.

    run        whose way, target, seed and other options the runs have; it is not entered.
    program    a file, or a module by its name.
    steps      of an optimiser; None: 10, and 40 where these lose digits without harm, or part by
               what may be chance.
    seconds    that it takes, of which so many are `spent`.
    tell       is called with what is known so far.
    """

    def body(again: Any) -> None:
        with again.afresh(), again:
            if isinstance(program, str):
                run_module(program, arguments)
            else:
                run_file(program, arguments)

    return run.diagnosis(body, steps, Budget(seconds, spent), (ProgramError,), tell)
