"""An unedited program in a session: as `python PROGRAM.py ARGS` runs it, on the machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ipu.frontends.common.programs import run_file
from ipu.frontends.torch.session import Session

__all__ = ["run_program"]


def run_program(session: Session, program: Path, arguments: Sequence[str]) -> int:
    """Run a program inside of a session; the status that it exits with.

    Raises    ProgramError where the program raises; KeyboardInterrupt as it is.
    """
    with session:
        return run_file(program, arguments)
