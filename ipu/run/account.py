"""The account of a run: operations by kind, counts by layer and direction, constants.

Kinds of operations: `machine` (the device's verbs), `exact` (moves and selections, which round
nothing), `host` (binary64 on the host, rounded once), `integer` (no floating-point numbers).
Nothing else runs: what belongs to no kind is refused.

Source    docs/semantics.md §3 (flags), §2 (constants).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fpsim.records.flags import Flags
from fpsim.records.formats import Format
from fpsim.state.counts import Counts
from ipu.learn.worker import SCOPE

__all__ = ["KINDS", "NO_WORK", "Account", "AccountedWork", "counted_name", "fit", "split_name"]

KINDS = ("machine", "exact", "host", "integer")

#: Names that are kept taken apart.
_NAMES = 1 << 12

#: Between layer and direction in the names that a device counts under.
_BETWEEN = "|"
_COUNTERS = ("results", "zeros", "subnormals", *(str(flag.name) for flag in Flags))


def counted_name(layer: str, direction: str) -> str:
    """The name under which a device counts the operations of a layer and direction.

    >>> counted_name("net.conv1", "forward")
    'net.conv1|forward'
    """
    return f"{layer}{_BETWEEN}{direction}"


#: Directions of what trainings of `ipu.learn` count under LAYER/PHASE; without one it is forward.
_PHASES = {
    "gradient": "backward", "accumulate": "backward", "unscale": "optimizer",
    "update": "optimizer", "mean": "optimizer", "regularizer": "forward",
    "recompute": "recompute", "evaluation": "evaluation", "reduce": "reduce",
}


@lru_cache(_NAMES)
def split_name(name: str) -> tuple[str, str]:
    """The layer and direction of a name under which a device counts.

    >>> split_name("net.conv1|forward")
    ('net.conv1', 'forward')
    >>> split_name("conv1|backward/accumulate")
    ('conv1', 'backward')
    >>> split_name("all_vars/hidden/gradient")  # of a training of ipu.learn
    ('hidden', 'backward')
    >>> split_name("reduce")  # over replicas
    ('', 'reduce')
    """
    layer, is_between, direction = name.rpartition(_BETWEEN)
    if is_between or not name:
        return layer, direction.partition("/")[0]
    layer, direction = name, "forward"
    while (parts := layer.rpartition("/"))[2] in _PHASES:
        layer, direction = parts[0], _PHASES[parts[2]]
    return layer and (layer.removeprefix(SCOPE).removeprefix("/") or "model"), direction


def fit(value: float, rounded: float, fmt: Format) -> str:
    """How a constant changes in a format: "" where it does not.

    >>> from fpsim import BINARY16
    >>> fit(1e-8, 0.0, BINARY16), fit(1e-6, 9.5e-7, BINARY16), fit(0.1, 0.09997559, BINARY16)
    ('zero', 'subnormal', '')
    >>> fit(0.9999, 1.0, BINARY16)  # a factor that decays nothing
    'one'
    >>> fit(1 - 2e-8, 1.0, BINARY16)  # nor does it in binary32
    ''
    """
    if value == 0 or value - value != 0:
        return ""
    if rounded == 0:
        return "zero"
    if abs(value) > fmt.max:
        return "overflow"
    if abs(rounded) == 1 and np.float32(abs(value)) != 1:
        return "one"
    return "subnormal" if abs(rounded) < fmt.smallest_normal else ""


class AccountedWork(NamedTuple):
    """What an account has counted: calls and elements by kind and operation, and constants."""

    calls: Counter[tuple[str, str]]
    elements: Counter[tuple[str, str]]
    constants: Counter[tuple[str, str, str, float, str]]

    def __add__(self, other: AccountedWork) -> AccountedWork:  # type: ignore[override]
        """Both together."""
        pairs: zip[tuple[Counter[Any], Counter[Any]]] = zip(self, other, strict=True)
        return AccountedWork(*[one + more for one, more in pairs])

    def __sub__(self, before: AccountedWork) -> AccountedWork:
        """What has been counted since then."""
        pairs: zip[tuple[Counter[Any], Counter[Any]]] = zip(self, before, strict=True)
        return AccountedWork(*[now - then for now, then in pairs])


#: Nothing has been counted.
NO_WORK = AccountedWork(Counter(), Counter(), Counter())


class Account:
    """What a run did.

    >>> account = Account()
    >>> account.add("machine", "aten.add.Tensor", 6)
    >>> account.add("host", "aten.cos.default", 2)
    >>> account.summary()["host"]["share"]
    0.25
    """

    def __init__(self) -> None:
        self._calls: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        self._elements: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
        self._constants: Counter[tuple[str, str, str, float, str]] = Counter()
        self._lines: dict[tuple[str, str, str, float, str], str] = {}
        self._native: Counter[str] = Counter()
        self._parameters: Counter[str] = Counter()
        #: Calls that were noted as of a kind.
        self.noted = 0
        #: Whether a scaler looked for infinities where overflow saturates: by the status register.
        self.asks_status = False
        #: The program makes tensors float16 or bfloat16 itself.
        self.makes_halves = False
        #: Is called with that number after each call, as of what bounds a run; None: nothing is.
        self.watching: Callable[[int], object] | None = None

    def add(self, kind: str, operation: str, elements: int) -> None:
        """One call of an operation with so many floating-point results."""
        self.noted += 1
        self._calls[kind][operation] += 1
        self._elements[kind][operation] += elements
        if self.watching is not None:
            self.watching(self.noted)

    def add_calls(self, kind: str, operation: str, calls: int, elements: int = 0) -> None:
        """So many calls of an operation, with so many floating-point results in all."""
        self.noted += calls
        self._calls[kind][operation] += calls
        self._elements[kind][operation] += elements

    def work(self) -> AccountedWork:
        """All that was counted so far.

        >>> account = Account()
        >>> account.add("machine", "aten.add.Tensor", 6)
        >>> account.repeat(account.work())
        >>> account.summary()["operations"]["machine"]
        2
        """
        calls, elements = (
            Counter({(kind, name): n for kind in KINDS for name, n in rows[kind].items()})
            for rows in (self._calls, self._elements)
        )
        return AccountedWork(calls, elements, self._constants.copy())

    def repeat(self, work: AccountedWork) -> None:
        """As much has been done once more."""
        for (kind, name), n in work.calls.items():
            self.noted += n
            self._calls[kind][name] += n
        for (kind, name), n in work.elements.items():
            self._elements[kind][name] += n
        self._constants.update(work.constants)

    def native(self, operation: str) -> None:
        """A call with floating-point results that came back without being noted as of a kind."""
        self._native[operation] += 1

    def constant(
        self, layer: str, direction: str, fmt: Format, value: float, change: str, line: str = ""
    ) -> None:
        """A constant of a layer did not fit into the format.

        line    of the user's program; that of the first time is told.
        """
        key = layer, direction, fmt.name, value, change
        self._constants[key] += 1
        self._lines.setdefault(key, line)

    def parameter(self, layer: str, elements: int) -> None:
        """A parameter of a layer."""
        self._parameters[layer] += elements

    def summary(self) -> dict[str, Any]:
        """operations, native, host, parameters, constants, asks_status and makes_halves.

        native        calls with floating-point results that nothing noted as of a kind.
        share         of the elements that were computed, on the host.
        parameters    their elements, by layer.
        """
        calls = {kind: sum(counts.values()) for kind, counts in self._calls.items()}
        computed = sum(sum(self._elements[kind].values()) for kind in ("machine", "host"))
        on_host = sum(self._elements["host"].values())
        return {
            "operations": calls | {"all": sum(calls.values()), "computed_elements": computed},
            "native": sum(self._native.values()),
            "host": {
                "share": on_host / computed if computed else 0.0,
                "elements": on_host,
                "operations": {
                    name: {"calls": n, "elements": self._elements["host"][name]}
                    for name, n in sorted(self._calls["host"].items())
                },
            },
            "parameters": dict(self._parameters),
            "asks_status": self.asks_status,
            "makes_halves": self.makes_halves,
            "constants": [
                {"layer": layer, "direction": direction, "format": fmt, "value": value,
                 "becomes": change, "times": n, "line": self._lines[key]}
                for key, n in sorted(self._constants.items())
                for layer, direction, fmt, value, change in [key]
            ],
        }

    @staticmethod
    def layers(counts: Counts | None) -> dict[str, dict[str, dict[str, int]]]:
        """Counters by layer and direction, of what a device counted under `counted_name`."""
        table: dict[str, dict[str, dict[str, int]]] = {}
        for (tensor, _), row in (counts or {}).items():
            layer, direction = split_name(tensor)
            sums = table.setdefault(layer, {}).setdefault(direction, dict.fromkeys(_COUNTERS, 0))
            for name in _COUNTERS:
                sums[name] += row[name]
        return table
