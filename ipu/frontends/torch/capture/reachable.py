"""All that a function of the program reaches in Python: what a captured step may depend on.

From a function its closure, its defaults and the globals that it names are followed, then the
attributes of objects, items of lists and dicts, classes and functions of the program. Numbers,
texts and identities of objects are remembered. What Python computes from them is the same again as
long as nothing of it has changed. Numbers inside of tensors do not belong to it, nor what torch,
numpy and Python's own library hold.
"""

from __future__ import annotations

import random
import sys
import types
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from io import IOBase
from operator import is_
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import torch

from ipu.run.run import Run

__all__ = ["PythonState"]

_MISSING = object()
#: Stands behind the places of each object where those of all are compared at once.
_END = object()
_PLAIN = (int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_OPAQUE = (*_PLAIN, Run, IOBase, types.CodeType)
#: Packages whose classes and functions are taken as they are.
_LIBRARIES = frozenset({"torch", "numpy", "numba", "fpsim", "ipu", *sys.stdlib_module_names})
_LIBRARIES -= {"__main__"}
_BYTES = (bytearray, memoryview, array)
_CONTAINERS = (list, tuple, set, frozenset, deque, types.MappingProxyType)
_CALLED = (types.FunctionType, types.MethodType, types.BuiltinMethodType, partial)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
#: Names by which a function of the program comes to numbers of parameter groups.
_OF_GROUPS = frozenset({"param_groups", "get_last_lr"})
#: More places than that are not looked at before every step.
_MOST = 60_000
#: Elements of an array of numpy that are looked at.
_FEW = 64


class WatchedPlaces(NamedTuple):
    """Some places of one object.

    read     what they hold now.
    values   what they held.
    names    of the places.
    number   identity of the parameter group whose number this is, and its key; else None.
    """

    path: str
    read: Callable[[], Collection[Any]]
    values: tuple[Any, ...]
    names: tuple[Any, ...]
    number: tuple[int, str] | None = None

    def has_changed(self) -> bool:
        """Whether another object stands somewhere."""
        now = self.read()
        return len(now) != len(self.values) or not all(map(is_, now, self.values))

    def change(self) -> str:
        """The path of the first place that holds something else; "" where values are equal."""
        now = tuple(self.read())
        if len(now) != len(self.values):
            return self.path
        for name, before, after in zip(self.names, self.values, now, strict=True):
            if not _is_same(before, after):
                return f"{self.path}.{name}" if self.path else str(name)
        return ""


class PythonState:
    """What a function reaches, as it is now.

    tensors    that were met, in order.
    refusal    why a step with this function cannot be replayed; "" where nothing is against it.
    names_groups    whether the program's code names parameter groups of optimisers.

    >>> scale = [2.0]
    >>> state = PythonState(partial(map, abs, scale))
    >>> scale[0] = 3.0
    >>> state.change()
    'args.1.0'
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.tensors: list[torch.Tensor] = []
        self.refusal = ""
        self.names_groups = False
        self._step = function  # of the program, wherever it is defined
        self._rows: list[WatchedPlaces] = []
        self._objects: dict[int, Any] = {}
        self._waiting: list[tuple[str, Any]] = [("", function)]
        hooks = vars(torch.nn.modules.module)
        for name in [name for name in hooks if name.startswith("_global_") and "hooks" in name]:
            self._hooks(f"torch.nn.modules.module.{name}", hooks[name])
        while self._waiting and not self.refusal:
            path, value = self._waiting.pop()
            if id(value) not in self._objects:
                self._objects[id(value)] = value
                self._follow(path, value)
            if len(self._rows) > _MOST:
                self.refusal = f"the step reaches more than {_MOST} places of Python's memory"
        others = [row for row in self._rows if row.number is None]
        self._numbers = [row for row in self._rows if row.number is not None]
        self._reads = [row.read for row in others]
        self._values = [value for row in others for value in (*row.values, _END)]

    def change(self, declared: Collection[tuple[int, str]] = ()) -> str:
        """The path of a place that holds something else now; "" where nothing has changed.

        declared    numbers that may change: identities of parameter groups, and keys.
        """
        for row in self._numbers if self._is_same() else self._rows:
            if row.number not in declared and row.has_changed() and (path := row.change()):
                return path
        return ""

    def _is_same(self) -> bool:
        """Whether every place but those of parameter groups holds the same object as before."""
        now: list[Any] = []
        for read in self._reads:
            now.extend(read())
            now.append(_END)
        return len(now) == len(self._values) and all(map(is_, now, self._values))

    # Following ------------------------------------------------------------------------------

    def _watch(
        self, path: str, read: Callable[[], Collection[Any]], names: Iterable[Any],
        number: tuple[int, str] | None = None,
    ) -> None:
        values, names = tuple(read()), tuple(names)
        self._rows.append(WatchedPlaces(path, read, values, names, number))
        start = f"{path}." if path else ""
        self._waiting += [
            (f"{start}{name}", value) for name, value in zip(names, values, strict=True)
            if value is not _MISSING and not isinstance(value, _PLAIN)
        ]

    def _hooks(self, path: str, hooks: Any) -> None:
        """Hooks of all modules, but for those of a session."""
        def read() -> list[Any]:
            owners = ((hook, getattr(hook, "__self__", hook)) for hook in hooks.values())
            return [h for h, owner in owners if not _is_of_laboratory(type(owner).__module__)]

        if isinstance(hooks, dict):
            self._watch(path, read, range(len(read())))

    def _follow(self, path: str, value: Any) -> None:
        if isinstance(value, torch.Tensor):
            self._tensor(path, value)
        elif isinstance(value, _OPAQUE):
            return
        elif isinstance(value, _GENERATORS):
            self.refusal = f"the step may draw from {path}, which replay cannot follow"
        elif isinstance(value, np.ndarray):
            self._array(path, value)
        elif hasattr(type(value), "__next__"):
            self.refusal = f"the step may take from the iterator {path}; give it what comes next"
        elif isinstance(value, _CALLED):
            self._function(path, value)
        elif isinstance(value, types.ModuleType):
            return  # the names that functions take from it are followed there
        elif isinstance(value, type):
            self._class(path, value)
        elif isinstance(value, dict):
            self._dict(path, value)
        elif isinstance(value, (*_BYTES, *_CONTAINERS)):
            self._items(path, value)
        else:
            self._object(path, value)

    def _items(self, path: str, value: Any) -> None:
        if isinstance(value, _BYTES):
            self._watch(path, lambda: [bytes(value)], ["(its numbers)"])
        elif isinstance(value, types.MappingProxyType):
            self._watch(path, lambda: list(value.values()), map(str, value))
        else:
            self._watch(path, partial(tuple, value), range(len(value)))

    def _tensor(self, path: str, x: torch.Tensor) -> None:
        self.tensors.append(x)
        names = ("_backward_hooks", "_post_accumulate_grad_hooks", "requires_grad", "__dict__")
        self._watch(path, lambda: [getattr(x, name, None) for name in names], names)

    def _array(self, path: str, x: np.ndarray[Any, Any]) -> None:
        if x.size > _FEW or x.dtype.hasobject:
            self.refusal = f"the step may read the array {path}; give it tensors, as arguments"
        self._watch(path, lambda: [x.tobytes()], ["(its numbers)"])

    def _dict(self, path: str, value: dict[Any, Any]) -> None:
        names = [str(key) if isinstance(key, (str, int)) else "…" for key in value]
        self._watch(path, value.values, names)
        if value:
            self._watch(path, value.keys, [f"{name} (a key)" for name in names])

    def _function(self, path: str, value: Any) -> None:
        if isinstance(value, types.BuiltinMethodType):
            self._waiting.append((path, value.__self__))
            return
        if isinstance(value, types.MethodType):
            self._waiting += [(path, value.__self__), (path, value.__func__)]
            return
        if isinstance(value, partial):
            names = ("func", "args", "keywords")
            self._watch(path, lambda: [getattr(value, name) for name in names], names)
            return
        if value is not self._step and _is_of_library(value.__module__):
            return
        cells = value.__closure__ or ()
        self._watch("", lambda: [_content(cell) for cell in cells], value.__code__.co_freevars)
        defaults = ("__defaults__", "__kwdefaults__", "__code__", "__dict__")
        self._watch(
            path or value.__name__, lambda: [getattr(value, name) for name in defaults], defaults
        )
        in_code = _names_in(value.__code__)
        self.names_groups |= not _OF_GROUPS.isdisjoint(in_code)
        self._names(value.__globals__, in_code)

    def _names(self, scope: dict[str, Any], names: tuple[str, ...]) -> None:
        """Globals, and what is taken from modules of the program."""
        self._watch("", lambda: [scope.get(name, _MISSING) for name in names], names)
        for name in names:
            module = scope.get(name)
            if not isinstance(module, types.ModuleType) or id(module) in self._objects:
                continue
            if not _is_of_library(module.__name__):
                self._objects[id(module)] = module
                self._names(vars(module), names)

    def _class(self, path: str, value: type) -> None:
        if _is_of_library(value.__module__):
            return
        read = vars(value)
        names = [name for name in read if name not in ("__weakref__", "__dict__", "__doc__")]
        self._watch(path, lambda: [read.get(name, _MISSING) for name in names], names)
        self._waiting += [(path, base) for base in value.__bases__]

    def _object(self, path: str, value: Any) -> None:
        if _is_of_laboratory(type(value).__module__):
            return
        self._waiting.append((type(value).__name__, type(value)))
        if isinstance(value, torch.optim.Optimizer):
            for i, group in enumerate(value.param_groups):
                self._group(f"{path}.param_groups.{i}", group)
        if isinstance(value, (staticmethod, classmethod)):
            self._waiting.append((path, value.__func__))
        elif isinstance(value, property):
            self._waiting.append((path, value.fget))
        elif isinstance(value, ref):
            self._waiting.append((path, value()))
        attributes = getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self._dict(path, attributes)
        slots = [
            name for kind in type(value).__mro__ if not _is_of_library(kind.__module__)
            for name in _texts(getattr(kind, "__slots__", ()))
        ]
        if slots:
            self._watch(path, lambda: [getattr(value, n, _MISSING) for n in slots], slots)

    def _group(self, path: str, group: dict[str, Any]) -> None:
        """A parameter group, whose numbers may be declared."""
        self._objects[id(group)] = group
        numbers = [name for name, value in group.items() if _is_number(value)]
        others = [name for name in group if name not in numbers]
        for name in numbers:
            self._watch(path, partial(_values_at, group, (name,)), [name], (id(group), name))
        self._watch(path, partial(_values_at, group, others), others)
        # A momentum of zero has no buffers.
        switches = [name for name in numbers if name != "lr"]
        self._watch(path, lambda: [group.get(name, 0) != 0 for name in switches], switches)


def _values_at(group: dict[str, Any], names: Sequence[str]) -> list[Any]:
    return [group.get(name, _MISSING) for name in names]


def _is_of_laboratory(module: str) -> bool:
    """Whether a class is one of ours, which keeps account of the session."""
    is_experiment = module.startswith("ipu.experiments")
    return module.partition(".")[0] in ("fpsim", "ipu") and not is_experiment


def _is_of_library(module: str | None) -> bool:
    name = module or ""
    return name.partition(".")[0] in _LIBRARIES and not name.startswith("ipu.experiments")


def _is_number(value: Any) -> bool:
    """Whether a value of a parameter group is a number that is no switch, or several."""
    if isinstance(value, tuple):
        return bool(value) and all(map(_is_number, value))
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_same(before: Any, after: Any) -> bool:
    """Whether Python computes the same from both: the same object, or equal numbers and texts."""
    if before is after:
        return True
    if type(before) is not type(after):
        return False
    if isinstance(before, _PLAIN):
        return repr(before) == repr(after)
    if isinstance(before, tuple):
        return len(before) == len(after) and all(map(_is_same, before, after))
    return False


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return _MISSING


def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """Names that a function and those inside of it look up."""
    inner = [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return tuple(dict.fromkeys((*code.co_names, *(n for x in inner for n in _names_in(x)))))


def _texts(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
