"""A model as a chain of layers: between any two neighbours a plan may cut it.

A layer has cycles and variables; an activation is born in one layer, taken by others up to a last
one, and may be saved for backward. So the figures of any run of layers follow, also where a skip
connection crosses a cut: what a stage receives is all that was born before it and is taken in it
or behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ipu.plan.memory import Holding, StageFigures
from ipu.plan.plan import Plan

__all__ = ["Activation", "LayerChain", "ChainLayer", "ChainRanges", "StageArrays"]

#: Variables that the figures of a stage name.
_LARGEST = 3

#: Figures of layers that are added up.
_CYCLES = (
    "forward_cycles", "backward_cycles", "forward_exchange", "backward_exchange",
    "forward_saving", "backward_saving",
)

Integers = NDArray[np.int64]


class ChainLayer(NamedTuple):
    """The smallest piece of a model that a plan moves.

    variables    that it uses, by their keys.
    """

    name: str
    forward_cycles: int = 0
    backward_cycles: int = 0
    work_bytes: int = 0
    checkpoint_bytes: int = 0
    variables: tuple[Any, ...] = ()
    forward_exchange: int = 0
    backward_exchange: int = 0
    forward_saving: int = 0
    backward_saving: int = 0


class Activation(NamedTuple):
    """A tensor of one micro-batch: numbers of layers; born is -1 for the model's inputs.

    last     that takes it; its own, if it leaves no layer.
    saved    the first whose backward pass needs it; -1: none.
    """

    bytes: int
    born: int
    last: int
    saved: int = -1


@dataclass(frozen=True)
class LayerChain:
    """Layers in forward order, what flows between them, and their variables.

    update_cycles    of all variables.
    count            micro-batches of one update of the program that was measured.

    >>> layers = [ChainLayer("a", 10, 20), ChainLayer("b", 30, 60)]
    >>> chain = LayerChain(layers, [Activation(8, -1, 0, 0), Activation(4, 0, 1, 1)])
    >>> [figures.input_bytes for figures in chain.stages((1,))]
    [8, 4]
    >>> chain.stages(())[0].saved_bytes, chain.stages(())[0].forward_cycles
    (12, 40)
    """

    layers: Sequence[ChainLayer]
    activations: Sequence[Activation]
    variables: Mapping[Any, Holding] = field(default_factory=dict)
    infeed_bytes: int = 0
    outfeed_bytes: int = 0
    update_cycles: int = 0
    count: int = 1

    @classmethod
    def of_stages(
        cls, figures: Sequence[StageFigures], names: Sequence[str] = (), count: int = 1
    ) -> LayerChain:
        """The chain whose layers are the stages of a plan: only whole stages can be moved.

        Raises    ValueError for no figures.
        """
        if not figures:
            raise ValueError("figures=() are of no program; measure one with layers")
        layers, activations = [], []
        variables: dict[Any, Holding] = {}
        last = len(figures) - 1
        for stage, of_stage in enumerate(figures):
            whole = Holding(
                of_stage.parameter_bytes, of_stage.accumulator_bytes, of_stage.tensors_of_state,
                of_stage.state_itemsize,
            )
            keys = [(stage, i) for i in range(max(len(of_stage.variables), 1))]
            variables |= dict(zip(keys, of_stage.variables or (whole,), strict=True))
            layers.append(ChainLayer(
                names[stage] if names else f"stage {stage}", of_stage.forward_cycles,
                of_stage.backward_cycles, of_stage.work_bytes, of_stage.checkpoint_bytes,
                tuple(keys), of_stage.forward_exchange, of_stage.backward_exchange,
                of_stage.forward_saving, of_stage.backward_saving,
            ))
            inside = of_stage.saved_bytes - of_stage.input_bytes
            activations += [
                Activation(of_stage.input_bytes, stage - 1, stage, stage),
                Activation(max(inside, 0), stage, stage, stage),
            ]
        return cls(
            layers, activations, variables, figures[0].infeed_bytes, figures[last].outfeed_bytes,
            sum(of_stage.update_cycles for of_stage in figures), count,
        )

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def first_uses(self) -> dict[Any, int]:
        """The layer that each variable belongs to: the first that uses it."""
        first: dict[Any, int] = {}
        for number, layer in enumerate(self.layers):
            for key in layer.variables:
                first.setdefault(key, number)
        return first

    @cached_property
    def shared(self) -> tuple[tuple[int, ...], ...]:
        """Layers that use one variable, which must be on one IPU, where there are several."""
        users: dict[Any, list[int]] = {}
        for number, layer in enumerate(self.layers):
            for key in dict.fromkeys(layer.variables):
                users.setdefault(key, []).append(number)
        return tuple(sorted({tuple(row) for row in users.values() if len(row) > 1}))

    def holdings(self, start: int, stop: int) -> list[Holding]:
        """The variables that belong to these layers."""
        return [
            self.variables[key] for key, layer in self.first_uses.items() if start <= layer < stop
        ]

    def crossing(self, number: int) -> int:
        """Bytes that a stage beginning with this layer receives."""
        return sum(a.bytes for a in self.activations if a.born < number <= a.last)

    def stage(self, start: int, stop: int) -> StageFigures:
        """The figures of a stage of these layers."""
        layers, holdings = self.layers[start:stop], self.holdings(start, stop)
        enters, leaves = self.crossing(start), self.crossing(stop)
        stays = sum(a.bytes for a in self.activations if start <= a.born and 0 <= a.saved < stop)
        state = tuple(size for holding in holdings for size in holding.state)
        values = sum(holding.values for holding in holdings)
        named = sorted(holdings, key=lambda holding: -holding.total)[:_LARGEST]
        return StageFigures(
            parameter_bytes=values, state_bytes=sum(state), state_tensors=state,
            state_itemsize=next((h.itemsize for h in holdings if h.state), 4),
            accumulator_bytes=sum(holding.accumulator for holding in holdings),
            input_bytes=enters, output_bytes=leaves, saved_bytes=enters + stays,
            checkpoint_bytes=sum(layer.checkpoint_bytes for layer in layers),
            work_bytes=max((layer.work_bytes for layer in layers), default=0),
            infeed_bytes=self.infeed_bytes if start == 0 else 0,
            outfeed_bytes=self.outfeed_bytes if stop == len(self.layers) else 0,
            **{name: sum(getattr(layer, name) for layer in layers) for name in _CYCLES},
            update_cycles=int(_share(self.update_cycles, values, self._values)),
            variables=tuple(holdings),
            largest=tuple((holding.name, holding.total) for holding in named if holding.name),
        )

    @cached_property
    def _values(self) -> int:
        return sum(self.variables[key].values for key in self.first_uses)

    def stages(self, cuts: Iterable[int]) -> tuple[StageFigures, ...]:
        """The figures of the stages between these cuts; a cut is the number of a first layer."""
        return tuple(self.stage(a, b) for a, b in pairwise((0, *cuts, len(self.layers))))


def _share(cycles: int, values: Any, total: int) -> Any:
    """The share of an update by bytes."""
    return -(-cycles * values // total) if total else 0 * values


class StageArrays:
    """Figures of one stage in many plans at once: those of `StageFigures`, as arrays."""

    recompute_cycles = None

    def __init__(self, ranges: ChainRanges, start: Integers, stop: Integers) -> None:
        self._ranges, self._where = ranges, (start, stop)
        for name, table in ranges.tables.items():
            setattr(self, name, table[start, stop])

    def state_in(self, plan: Plan) -> tuple[Integers, Integers]:
        """As `StageFigures.state_in`."""
        chip, remote, _ = self._ranges.of_plan(plan)
        return chip[self._where], remote[self._where]

    def brought(self, plan: Plan) -> dict[str, Integers]:
        """As `StageFigures.brought`, all kinds together."""
        return {"state": self._ranges.of_plan(plan)[2][self._where]}


class ChainRanges:
    """Figures of every run of layers of a chain, as tables by first layer and layer behind."""

    def __init__(self, chain: LayerChain) -> None:
        self.chain = chain
        n = len(chain)
        layers = chain.layers
        self._owner = np.array(list(chain.first_uses.values()), np.int64)
        self._holdings = [chain.variables[key] for key in chain.first_uses]
        enters = np.array([chain.crossing(i) for i in range(n + 1)], np.int64)
        values = self._summed(self._by_layer([h.values for h in self._holdings]))
        total = int(values[0, n])
        first, behind = np.indices((n + 1, n + 1))
        #: By the names of `StageFigures`.
        self.tables: dict[str, Integers] = {
            "parameter_bytes": values,
            "accumulator_bytes": self._summed(
                self._by_layer([h.accumulator for h in self._holdings])
            ),
            "input_bytes": enters[first], "output_bytes": enters[behind],
            "saved_bytes": enters[first] + self._kept(),
            "checkpoint_bytes": self._summed([layer.checkpoint_bytes for layer in layers]),
            "work_bytes": _largest([layer.work_bytes for layer in layers]),
            "infeed_bytes": np.where(first == 0, chain.infeed_bytes, 0),
            "outfeed_bytes": np.where(behind == n, chain.outfeed_bytes, 0),
            "update_cycles": _share(chain.update_cycles, values, total),
        }
        self.tables |= {
            name: self._summed([getattr(layer, name) for layer in layers]) for name in _CYCLES
        }
        self._of_plans: dict[Any, tuple[Integers, Integers, Integers]] = {}

    def _by_layer(self, sizes: Sequence[int] | Integers) -> Integers:
        """Sums of the variables that belong to each layer."""
        sums = np.zeros(len(self.chain), np.int64)
        np.add.at(sums, self._owner, np.array(sizes, np.int64))
        return sums

    def _summed(self, rows: Sequence[int] | Integers) -> Integers:
        """Sums over all runs of layers."""
        upto = np.concatenate([[0], np.cumsum(np.array(rows, np.int64))])
        return np.asarray(upto[None, :] - upto[:, None])

    def _kept(self) -> Integers:
        """Bytes of activations born and saved in each run of layers."""
        n = len(self.chain)
        table = np.zeros((n + 2, n + 1), np.int64)
        for activation in self.chain.activations:
            if activation.born >= 0 <= activation.saved:
                table[activation.born, activation.saved] += activation.bytes
        born_from = np.cumsum(table[::-1], axis=0)[::-1]
        saved = np.zeros((n + 1, n + 1), np.int64)
        saved[:, 1:] = np.cumsum(born_from, axis=1)[: n + 1, :n]
        return saved

    def of_plan(self, plan: Plan) -> tuple[Integers, Integers, Integers]:
        """Bytes of the state on the chip, in remote memory, and of what an update brings at once.

        They depend on a plan's offload and shards alone.
        """
        key = plan.offloaded, plan.replicas if plan.shard_state else 1, plan.shard_minimum
        if key not in self._of_plans:
            whole = [StageFigures(
                parameter_bytes=h.values, accumulator_bytes=h.accumulator,
                state_bytes=sum(h.state), state_tensors=h.state, state_itemsize=h.itemsize,
            ) for h in self._holdings]
            chip, remote = np.array([f.state_in(plan) for f in whole]).reshape(-1, 2).T
            most = np.zeros(len(self.chain), np.int64)
            brought = [sum(figures.brought(plan).values()) for figures in whole]
            np.maximum.at(most, self._owner, np.array(brought, np.int64))
            self._of_plans[key] = (
                self._summed(self._by_layer(chip)), self._summed(self._by_layer(remote)),
                _largest(most),
            )
        return self._of_plans[key]

    def stages(self, cuts: Integers) -> tuple[StageArrays, ...]:
        """Figures of the stages of many plans; a row of cuts for each."""
        rows = len(cuts)
        edges = [np.zeros(rows, np.int64), *cuts.T, np.full(rows, len(self.chain))]
        return tuple(StageArrays(self, start, stop) for start, stop in pairwise(edges))


def _largest(rows: Sequence[int] | Integers) -> Integers:
    """The largest of every run of layers; 0 of none."""
    n = len(rows)
    table = np.zeros((n + 1, n + 1), np.int64)
    for start in range(n):
        table[start, start + 1 :] = np.maximum.accumulate(rows[start:])
    return table
