"""Runs of a session that write what its launches write take turns.

On a graph of TensorFlow 1 a launch is several nodes: reads of variables, the launch, assignments.
Another run of the session in between, with a launch or an assignment of its own, would be
overwritten. Runs that write none of these variables, as those that dequeue, go on meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from tensorflow.python.client import session as client

from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.engine.writes import handles_written_by, origin_of
from ipu.frontends.tensorflow.settings.notes import note

__all__ = ["note_launch", "turn"]

#: Seconds of a wait that a user is told of.
_LONG = 10.0


class _Launches:
    """What the launches of a graph write, and which fetches write it too."""

    def __init__(self) -> None:
        self.variables: set[str] = set()
        self.writing: dict[tuple[str, ...], bool] = {}

    def are_written_by(self, fetches: Iterable[Any]) -> bool:
        """Whether a run that fetches these writes a variable that a launch writes."""
        ops = [getattr(fetch, "op", fetch) for fetch in fetches]
        key = tuple(op.name for op in ops)
        if key not in self.writing:
            self.writing[key] = any(
                origin_of(handle) in self.variables
                for op in _closure(ops)
                if any(tensor.dtype.name == "resource" for tensor in op.inputs)
                for handle in handles_written_by(Node(op))
            )
        return self.writing[key]


_launches: WeakKeyDictionary[Any, _Launches] = WeakKeyDictionary()
_turns: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
_making = threading.Lock()


def note_launch(graph: Any, written: Iterable[Any]) -> None:
    """A graph has a launch that writes the variables of these handles."""
    launches = _launches.setdefault(graph, _Launches())
    launches.variables.update(origin_of(handle) for handle in written)
    launches.writing.clear()


@contextmanager
def turn(session: Any, fetches: Any) -> Iterator[None]:
    """Inside, the session runs these fetches, at their turn."""
    launches = _launches.get(session.graph)
    if launches is None or not launches.are_written_by(_elements(session.graph, fetches)):
        yield
        return
    with _making:
        lock = _turns.setdefault(session, threading.RLock())
    if not lock.acquire(timeout=_LONG):
        note(
            f"a run of a session has waited {_LONG:.0f} s for another run that writes the same "
            "variables; one that a host function starts inside a launch never gets its turn: "
            "return the value from the launch and assign it there"
        )
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _elements(graph: Any, fetches: Any) -> list[Any]:
    """The tensors and operations that a run fetches; none where it will refuse them."""
    try:
        with graph.as_default():
            return list(client._FetchMapper.for_fetch(fetches).unique_fetches())
    except (TypeError, ValueError, KeyError):
        return []


def _closure(ops: Iterable[Any]) -> set[Any]:
    """The operations that a run of these executes."""
    reached, todo = set(), list(ops)
    while todo:
        op = todo.pop()
        if op not in reached:
            reached.add(op)
            todo += [tensor.op for tensor in op.inputs] + list(op.control_inputs)
    return reached
