"""The first steps of a program, run again and again for a diagnosis.

Source    `ipu.run.diagnosis`.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

import torch

from ipu.frontends.processes.programs import ProgramError
from ipu.frontends.processes.seeding import seeded
from ipu.frontends.torch.program import run_program
from ipu.frontends.torch.session import EnoughError, Session
from ipu.run.diagnosis import Diagnosis, Replay, diagnose
from ipu.run.endpoints import Outcome
from ipu.run.restoring import UPDATE, Restoring
from ipu.run.run import Step
from ipu.run.ways import Way

__all__ = ["diagnose_program", "diagnose_step"]


def diagnose_program(
    session: Session, program: Path | str, arguments: Sequence[str], steps: int,
    seconds: float = 60.0,
) -> Diagnosis:
    """What hurts the first steps of an unedited program; its output is thrown away.

    session    whose way, target, seed and other options the runs have; it is not entered.
    """

    def body(again: Session) -> None:
        run_program(again, program, arguments)

    return diagnose(_replaying(session, steps, body), session.way, steps, seconds)


def diagnose_step(session: Session, step: Step, steps: int, seconds: float = 60.0) -> Diagnosis:
    """What hurts the first steps of `step(seed)`, which makes all from that seed and trains."""

    def body(again: Session) -> None:
        with torch.random.fork_rng(devices=[]), again:
            torch.manual_seed(0)
            step(0)

    return diagnose(_replaying(session, steps, body), session.way, steps, seconds)


def _replaying(session: Session, steps: int, body: Callable[[Session], None]) -> Replay:
    """Runs that begin at the same seeds and stop after so many steps."""

    def run(way: Way, restoring: Restoring, has_shadow: bool) -> Outcome:
        if any(site.role == UPDATE for site in restoring.sites):
            way = replace(way, changes=replace(way.changes, wide_states=True))
        again = session.again(way, session.options.seed, restoring)
        if has_shadow:
            again.shadow(steps)
        again.stop_after(steps)
        error = ""
        with (
            seeded(0), warnings.catch_warnings(), redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            try:
                body(again)
            except EnoughError:
                pass
            except (ProgramError, ValueError, NotImplementedError, ArithmeticError) as stopped:
                error = str(stopped).partition("\n")[0]
        report = again.report()
        return Outcome(report["losses"], report, error)

    return run
