"""Trials: a program run in several ways from equal states, and which of them restores binary32.

Every way runs with every seed; a way is compared with binary32 seed by seed. It restores binary32's
curve where its final loss is above binary32's by less than binary32's own spread over the seeds,
the whole interval of the mean difference below it; it does not where the whole interval lies above.
A run whose losses are not finite restores nothing. The spread counts as 1 % of the loss at least.

Costs are of the model of the device: cycles of the products, and bits of a parameter with two
states of the optimiser (the mean over the parameters of all layers, each in its layer's format),
both beside those of the way that gave rise to the trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fpsim.state.processor import usual_arithmetic
from ipu.learn.policy import FP32
from ipu.run.advice import exceptions
from ipu.run.verdict import Effect, over_seeds
from ipu.run.ways import Way

__all__ = ["Outcome", "Trial", "combinations", "final_loss", "try_ways"]

#: Runs the program in a way with a seed.
RunWay = Callable[[Way, int], "Outcome"]
#: Share of the steps whose mean loss is the final one, and their least number.
_LAST, _LEAST = 0.1, 3
#: Of the final loss, the smallest spread that counts.
_RELATIVE = 0.01
YES, NO, UNDECIDED, REFERENCE = "yes", "no", "undecided", "reference"


@dataclass(frozen=True)
class Outcome:
    """Losses of a run's steps and its report; or why it stopped."""

    losses: Sequence[float]
    report: Mapping[str, Any]
    error: str = ""


@dataclass(frozen=True)
class Trial:
    """One way, over all seeds.

    restores      whether binary32's curve is restored: yes, no, undecided; or it is the reference.
    loss          final loss, mean and half width of its interval.
    difference    of the final loss from binary32's with the same seeds.
    counts        exceptions of the run with the first seed.
    cycles, bits  beside those of the base way.
    losses        by step, of the first seed.
    """

    way: Way
    restores: str
    loss: Effect
    difference: Effect
    counts: Mapping[str, int]
    cycles: float
    bits: float
    losses: Sequence[float]
    error: str = ""

    @property
    def cost(self) -> float:
        """By which ways that do the same are ordered."""
        return self.cycles + self.bits


@usual_arithmetic
def final_loss(losses: Sequence[float]) -> float:
    """The mean of the last tenth of the losses, of three at least; NaN of none.

    >>> final_loss([9.0, 3.0, 2.0, 1.0])
    2.0
    """
    n = max(_LEAST, math.ceil(_LAST * len(losses)))
    return float(np.mean(losses[-n:])) if len(losses) else math.nan


def try_ways(run: RunWay, ways: Sequence[Way], base: Way, seeds: Sequence[int]) -> list[Trial]:
    """Each way with each seed, beside binary32 and the base; the cheapest that restores it first.

    Raises    RuntimeError where binary32 or the base stops with an error, trains nothing on the
              machine, or tells no losses: their curves must be there.
    """
    reference = Way(FP32).with_policies
    order = list(dict.fromkeys([reference, base, *ways]))
    outcomes = {way: [run(way, seed) for seed in seeds] for way in order}
    for way in (reference, base):
        error = next((e for e in map(_fault, outcomes[way]) if e), "")
        if error:
            raise RuntimeError(f"the program does not run in the way {way}: {error}")
    trials = [_trial(way, outcomes, reference, base) for way in order]
    rank = {YES: 0, UNDECIDED: 1, NO: 2, REFERENCE: 3}
    return sorted(trials, key=lambda t: (rank[t.restores], t.cost, len(str(t.way))))


def _fault(outcome: Outcome) -> str:
    """Why a run is no measure of its way; "" where it is one."""
    if outcome.error:
        return outcome.error
    if not outcome.losses:
        return "there are no losses: return them from step(seed), or begin backward passes in it"
    operations = outcome.report.get("operations", {"machine": 1})
    if not operations["machine"]:
        return "nothing was computed on the machine: step(seed) must train when it is called"
    return ""


def combinations(ways: Sequence[Way], base: Way) -> Iterator[Way]:
    """Ways that cost nothing put together, then with parameters or states in binary32 too."""
    changes, sr = base.changes, base.sr
    for way in ways:
        sr = sr or way.sr
        if way.changes.eps is not None:
            changes = replace(changes, eps=way.changes.eps)
        if way.changes.loss_scale != base.changes.loss_scale:
            changes = replace(changes, loss_scale=way.changes.loss_scale)
    free = replace(base, sr=sr, changes=changes)
    yield free
    yield replace(free, sr=True)
    yield replace(free, changes=replace(changes, wide_states=True))
    for way in ways:
        if way.policy != base.policy:
            yield replace(free, policy=way.policy)


@usual_arithmetic
def _trial(way: Way, outcomes: Mapping[Way, list[Outcome]], reference: Way, base: Way) -> Trial:
    of_way, wanted = outcomes[way], [final_loss(o.losses) for o in outcomes[reference]]
    errors = [o.error for o in of_way if o.error]
    final = [final_loss(o.losses) for o in of_way]
    counted = exceptions(of_way[0].report) if of_way[0].report else {}
    cycles, bits = (f(way, of_way[0]) / (f(base, outcomes[base][0]) or 1) for f in (_cycles, _bits))
    if errors or not np.isfinite(final).all():
        nothing = Effect(math.nan, math.inf)
        return Trial(way, NO, nothing, nothing, counted, cycles, bits, of_way[0].losses,
                     errors[0] if errors else "losses are not finite")
    loss, difference = over_seeds(final), over_seeds(np.subtract(final, wanted))
    spread = max(float(np.std(wanted, ddof=1)) if len(wanted) > 1 else 0.0,
                 _RELATIVE * abs(float(np.mean(wanted))))
    verdict = YES if difference.is_below(spread) else NO if difference.is_above(spread) else (
        UNDECIDED
    )
    if way == reference:
        verdict = REFERENCE
    return Trial(way, verdict, loss, difference, counted, cycles, bits, of_way[0].losses)


def _cycles(way: Way, outcome: Outcome) -> float:
    return float(sum(row["cycles"] for row in outcome.report.get("units", [])))


def _bits(way: Way, outcome: Outcome) -> float:
    """Bits of a parameter and two states of its optimiser, the mean over all layers' parameters."""
    layers = outcome.report.get("parameters") or {"": 1}
    bits = 0.0
    for layer, n in layers.items():
        held = way.policy.of(layer).param.bits
        bits += n * (held + 2 * (FP32.param.bits if way.changes.wide_states else held))
    return float(bits / sum(layers.values()))
