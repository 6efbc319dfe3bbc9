"""The tape of a micro-batch: what its stages take from each other, and what they keep.

Autograd numbers the nodes of a thread in the order of the forward pass, so the number of a tensor's
node tells which stage computed it, and a backward pass, which runs the latest nodes first, comes to
one stage after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ipu.frontends.poptorch.outputs import flatten

__all__ = ["Tape", "next_node", "stage_heads"]

#: Of nodes that accumulate gradients, which have no number.
_NO_NUMBER = 1 << 62


def next_node() -> int:
    """Number of the node that autograd creates next."""
    number: int = torch.autograd._get_sequence_nr()
    return number


def _nodes(roots: list[Any], start: int = 0) -> Iterator[Any]:
    """Numbered nodes from `start` on that these depend on."""
    todo = [node for node in roots if node is not None]
    met: set[Any] = set()
    while todo:
        node = todo.pop()
        if node in met or not start <= node._sequence_nr() < _NO_NUMBER:
            continue
        met.add(node)
        yield node
        todo += [below for below, _ in node.next_functions if below is not None]


def stage_heads(root: torch.Tensor, starts: list[int]) -> dict[int, Any]:
    """The node of each stage that a backward pass comes to first: the latest one.

    starts    number of the first node of each stage.
    """
    heads: dict[int, Any] = {}
    ends = [*starts[1:], _NO_NUMBER]
    for node in _nodes([root.grad_fn]):
        number = node._sequence_nr()
        stage = next(s for s, end in enumerate(ends) if number < end)
        if stage not in heads or number > heads[stage]._sequence_nr():
            heads[stage] = node
    return heads


class Crossing(NamedTuple):
    """A tensor of an earlier stage that enters a later one.

    number    of the node that computed it.
    memory    stays alive, else another tensor may lie there later.
    """

    node: Any
    number: int
    bytes: int
    memory: torch.UntypedStorage


class Tape:
    """What the stages of a forward pass take, told call by call.

    bytes_of    a tensor in the format that it holds.
    """

    def __init__(self, bytes_of: Callable[[torch.Tensor], int]) -> None:
        self._bytes_of = bytes_of
        #: Number of the first node of each stage.
        self.starts = [0]
        self._entering: list[dict[tuple[int, int], Crossing]] = [{}]
        #: Parameters that the stages' calls take, in order of first use.
        self.used: list[dict[int, torch.Tensor]] = [{}]

    def begin(self, start: int) -> None:
        """Another stage begins with this node."""
        self.starts.append(start)
        self._entering.append({})
        self.used.append({})

    def note(self, arguments: Any) -> None:
        """A call takes these arguments."""
        for x in flatten(arguments):
            if x.grad_fn is None:
                if isinstance(x, torch.nn.Parameter):
                    self.used[-1].setdefault(id(x), x)
            elif x.grad_fn._sequence_nr() < self.starts[-1]:
                key = id(x.grad_fn), x.output_nr
                self._entering[-1].setdefault(key, Crossing(
                    x.grad_fn, x.grad_fn._sequence_nr(), self._bytes_of(x),
                    x.untyped_storage(),
                ))

    def entering(self, stage: int) -> list[Crossing]:
        """What comes into a stage; what a later one takes of an earlier one passes through."""
        if stage >= len(self.starts):
            return []
        passing = {k: c for k, c in self._later(stage).items() if c.number < self.starts[stage]}
        return list((self._entering[stage] | passing).values())

    def leaving(self, stage: int) -> list[Crossing]:
        """What later stages take of this one and of those before it."""
        if stage + 1 >= len(self.starts):
            return []
        later, end = self._later(stage).values(), self.starts[stage + 1]
        return [crossing for crossing in later if crossing.number < end]

    def _later(self, stage: int) -> dict[tuple[int, int], Crossing]:
        return {k: c for row in self._entering[stage + 1 :] for k, c in row.items()}

    def saved_bytes(
        self, stage: int, loss: torch.Tensor | None, fed: Sequence[torch.Tensor] = ()
    ) -> int:
        """Bytes that the nodes of a stage save beside what entered it and its parameters.

        loss    of the last stage; fed: inputs of the model, which enter the first.
        """
        if stage >= len(self.starts):
            return 0
        skip = {c.memory.data_ptr() for c in self.entering(stage)}
        skip |= {x.untyped_storage().data_ptr() for x in (*fed, *self.used[stage].values())}
        roots = [crossing.node for crossing in self.leaving(stage)]
        roots += [] if loss is None else [loss.grad_fn]
        # All of them are alive at once: else two that are made by a look have one address.
        saved = [x for node in _nodes(roots, self.starts[stage]) for x in _saved_tensors(node)]
        sizes: dict[int, int] = {}
        for x in saved:
            place = x.untyped_storage().data_ptr()
            if place not in skip:
                sizes[place] = max(sizes.get(place, 0), self._bytes_of(x))
        return sum(sizes.values())


def _saved_tensors(node: Any) -> list[torch.Tensor]:
    """What a node keeps for its backward pass."""
    saved = []
    for name in dir(node):
        if not name.startswith("_saved_"):
            continue
        try:
            value = getattr(node, name)
        except RuntimeError:  # written since: the backward pass will tell
            continue
        values = value if isinstance(value, (list, tuple)) else (value,)
        saved += [x for x in values if isinstance(x, torch.Tensor)]
    return saved + list(getattr(node, "saved_tensors", ()))
