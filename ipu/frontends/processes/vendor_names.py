"""Vendors' top-level names for ours: `import poptorch` inside of an unedited program.

Each name stands for a package below `ipu.frontends`, as the same modules, where no other package of
that name is installed. The names exist while a program runs, or, in a notebook, from `claim` on;
nothing is installed.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["claim", "vendor_names"]

#: Vendors' names, and the packages that stand for them.
NAMES = {
    "horovod": "ipu.frontends.horovod",
    "popart": "ipu.frontends.popart",
    "popdist": "ipu.frontends.popdist",
    "poptorch": "ipu.frontends.poptorch",
}


@contextmanager
def vendor_names() -> Iterator[None]:
    """Inside, the names that nobody else has can be imported.

    >>> with vendor_names():
    ...     import popdist
    >>> popdist.getNumInstances.__module__
    'ipu.frontends.popdist.environment'
    """
    finder = _Finder({name: ours for name, ours in NAMES.items() if _is_free(name, ours)})
    sys.meta_path.append(finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if finder.stands_for(name)]:
            del sys.modules[name]


def claim() -> None:
    """From here on the names that nobody else has can be imported, to the end of the process."""
    if not any(isinstance(finder, _Finder) and finder.stays for finder in sys.meta_path):
        free = {name: ours for name, ours in NAMES.items() if _is_free(name, ours)}
        sys.meta_path.append(_Finder(free, stays=True))


def _is_free(name: str, ours: str) -> bool:
    """Whether ours stands for a name: no other is installed."""
    return importlib.util.find_spec(name) is None and importlib.util.find_spec(ours) is not None


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds vendors' modules in ours, as the same modules."""

    def __init__(self, packages: dict[str, str], *, stays: bool = False) -> None:
        self._packages, self.stays = packages, stays

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = self._ours(name)
        if ours is None or importlib.util.find_spec(ours) is None:
            return None
        return ModuleSpec(name, self)

    def stands_for(self, name: str) -> bool:
        """Whether a module has a name of a vendor's package that ours stands for."""
        return self._ours(name) is not None

    def _ours(self, name: str) -> str | None:
        top, dot, rest = name.partition(".")
        return f"{self._packages[top]}{dot}{rest}" if top in self._packages else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        ours = self._ours(spec.name)
        assert ours is not None
        return importlib.import_module(ours)

    def exec_module(self, module: ModuleType) -> None:
        """The module was run when it was imported under its own name."""
