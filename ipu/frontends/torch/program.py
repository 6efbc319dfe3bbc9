"""An unedited program in a session: as `python PROGRAM.py ARGS` runs it, on the machine.

`import poptorch` finds `ipu.frontends.poptorch` where no PopTorch is installed.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ipu.frontends.torch.session import Session

__all__ = ["ProgramError", "as_main", "run_program"]

_POPTORCH, _OURS = "poptorch", "ipu.frontends.poptorch"


class ProgramError(Exception):
    """A user's program stopped: its file and line, and what happened, in one sentence."""


def run_program(session: Session, program: Path, arguments: Sequence[str]) -> int:
    """Run a program inside of a session; the status that it exits with.

    Raises    ProgramError where the program raises; KeyboardInterrupt as it is.
    """
    with as_main(program, arguments), session:
        try:
            runpy.run_path(str(program), run_name="__main__")
        except SystemExit as left:
            if isinstance(left.code, str):
                print(left.code, file=sys.stderr)
                return 1
            return int(left.code or 0)
        except Exception as error:
            raise ProgramError(_sentence(error, program)) from error
    return 0


@contextmanager
def as_main(program: Path, arguments: Sequence[str]) -> Iterator[None]:
    """sys.argv and sys.path as Python sets them for a program; poptorch can be imported."""
    before = sys.argv, list(sys.path), list(sys.meta_path)
    sys.argv = [str(program), *arguments]
    sys.path.insert(0, str(program.resolve().parent))
    if _has_poptorch():
        sys.meta_path.append(_PoptorchFinder())
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.meta_path[:] = before


def _has_poptorch() -> bool:
    """Whether ours stands for poptorch: no other is installed."""
    return importlib.util.find_spec(_POPTORCH) is None and (
        importlib.util.find_spec(_OURS) is not None
    )


class _PoptorchFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds poptorch and its modules in ours, as the same modules."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != _POPTORCH and not name.startswith(f"{_POPTORCH}."):
            return None
        if importlib.util.find_spec(_OURS + name.removeprefix(_POPTORCH)) is None:
            return None
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(_OURS + spec.name.removeprefix(_POPTORCH))

    def exec_module(self, module: ModuleType) -> None:
        """The module was run when it was imported under its own name."""


def _sentence(error: BaseException, program: Path) -> str:
    """FILE:LINE: what happened, with the last line of the user's own files."""
    folder = program.resolve().parent
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if _is_below(Path(f.filename), folder)]
    where = f"{own[-1].filename}:{own[-1].lineno}" if own else str(program)
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    text = str(error).partition("\n")[0]
    notes = "; ".join(getattr(error, "__notes__", ()))
    return f"{where}: {type(error).__name__}: {text}" + (f" ({notes})" if notes else "")


def _is_below(file: Path, folder: Path) -> bool:
    """Whether a file is the user's own: below the program's folder, and no installed package."""
    return folder in file.resolve().parents and "site-packages" not in file.parts
