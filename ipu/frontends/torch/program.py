"""An unedited program in a session: as `python PROGRAM.py ARGS` runs it, on the machine.

`import poptorch` finds `ipu.frontends.poptorch` where no PopTorch is installed.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from ipu.frontends.common.programs import run_file
from ipu.frontends.torch.session import Session

__all__ = ["finding_poptorch", "run_program"]

_POPTORCH, _OURS = "poptorch", "ipu.frontends.poptorch"


def run_program(session: Session, program: Path, arguments: Sequence[str]) -> int:
    """Run a program inside of a session; the status that it exits with.

    Raises    ProgramError where the program raises; KeyboardInterrupt as it is.
    """
    with finding_poptorch(), session:
        return run_file(program, arguments)


@contextmanager
def finding_poptorch() -> Iterator[None]:
    """poptorch can be imported inside."""
    before = list(sys.meta_path)
    if _has_poptorch():
        sys.meta_path.append(_PoptorchFinder())
    try:
        yield
    finally:
        sys.meta_path[:] = before


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
