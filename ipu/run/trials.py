"""Trials: a program run in several ways from equal states, and which are as good as binary32.

Ways are picked on two pairs of runs and confirmed on fresh ones, so that none wins by the luck of
its seeds: `pick` takes the cheapest of those whose estimate lies within the margin, `confirm` looks
at the pairs that follow, after 5, 8 and 12 of them, with Holm's procedure over the ways that are
confirmed. A pair is a way and binary32 with one seed.

Costs are of the model of the device: cycles of the products, and bits of a parameter with two
states of the optimiser (the mean over the parameters of all layers, each in its layer's format),
both beside those of the way that gave rise to the trials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fpsim.state.processor import usual_arithmetic
from ipu.learn.policy import FP32
from ipu.run.advice import exceptions
from ipu.run.endpoints import Outcome, final_loss, start_loss
from ipu.run.judging import (
    CANNOT_TELL,
    REFERENCE,
    Declaration,
    Judged,
    judge,
    judge_sharing,
    settled,
)
from ipu.run.looks import MOST_CONFIRMED
from ipu.run.ways import Way

__all__ = ["PICKING", "Trial", "TrialRun", "Trials", "combinations"]

#: Runs the program in a way with a seed.
RunWay = Callable[[Way, int], Outcome]
#: Pairs on which ways are picked; they confirm nothing.
PICKING = 2


class TrialRun(NamedTuple):
    """One run in numbers: what the table of trials follows from.

    role        of its way: reference, base or tried.
    start, final    of the losses; NaN where there are fewer than two.
    endpoint    NaN where the run stopped.
    cycles      of the products; bits: of a parameter with two states.
    """

    way: str
    role: str
    pair: int
    start: float
    final: float
    endpoint: float
    cycles: float
    bits: float
    divbyzero: int
    invalid: int
    overflow: int
    underflow: int


@dataclass(frozen=True)
class Trial:
    """One way, over its pairs.

    judged        the answer: of fresh pairs, or what the pairs of picking allow to say.
    value         the endpoint of its run with the first seed: its final loss, or a score.
    counts        exceptions of the run with the first seed.
    cycles, bits  beside those of the base way.
    losses        by step, of the first seed.
    """

    way: Way
    judged: Judged
    value: float
    counts: Mapping[str, int]
    cycles: float
    bits: float
    losses: Sequence[float]
    error: str = ""

    @property
    def cost(self) -> float:
        """By which ways that do the same are ordered."""
        return self.cycles + self.bits


class Trials:
    """Runs of a program, each made once, and what they say of its ways.

    base    the way that gave rise to the trials.
    """

    def __init__(self, run: RunWay, base: Way, declaration: Declaration) -> None:
        self.declaration, self.base = declaration, base
        self.reference = Way(FP32).with_policies
        self._run = run
        self._outcomes: dict[tuple[Way, int], Outcome] = {}

    def outcomes(self, way: Way, seeds: Sequence[int]) -> list[Outcome]:
        """The runs of a way with these seeds.

        Raises    RuntimeError where binary32 or the base stops with an error, trains nothing on the
                  machine, or has no losses: their curves must be there.
        """
        for seed in seeds:
            if (way, seed) not in self._outcomes:
                outcome = self._outcomes[way, seed] = self._run(way, seed)
                error = _fault(outcome, is_loss=self.declaration.endpoint.is_loss)
                if error and way in (self.reference, self.base):
                    raise RuntimeError(f"the program does not run in the way {way}: {error}")
        return [self._outcomes[way, seed] for seed in seeds]

    def estimate(self, way: Way) -> float:
        """The mean difference from binary32 of the pairs of picking; infinite where it diverged."""
        differences = self.declaration.endpoint.differences(
            self.outcomes(way, range(PICKING)), self.outcomes(self.reference, range(PICKING)))
        mean = float(np.mean(differences))
        return mean if math.isfinite(mean) else math.inf

    def pick(self, ways: Sequence[Way]) -> list[Way]:
        """The ways that are worth a confirmation: those within the margin, the cheapest first.

        Where none is within it, the nearest one.
        """
        for way in (self.reference, self.base):
            self.outcomes(way, range(PICKING))
        others = [way for way in dict.fromkeys(ways) if way not in (self.reference, self.base)]
        estimates = {way: self.estimate(way) for way in others}
        within = [way for way in others if estimates[way] < self.declaration.endpoint.margin]
        within.sort(key=lambda way: (self.cost(way), len(str(way))))
        near = sorted((way for way in others if math.isfinite(estimates[way])), key=estimates.get)  # type: ignore[arg-type]
        return within[:MOST_CONFIRMED] or near[:1]

    def confirm(self, ways: Sequence[Way]) -> dict[Way, Judged]:
        """The answers on fresh pairs, of these ways and of the base, look by look."""
        judged: dict[Way, Judged] = {}
        for n in self.declaration.looks:
            seeds = range(PICKING, PICKING + n)
            judged |= self._holm([way for way in ways if not _is_settled(judged, way)], seeds)
            if not _is_settled(judged, self.base):
                judged[self.base] = self._judge(self.base, seeds, 1)
            if all(map(settled, judged.values())):
                break
        return judged

    def _holm(self, ways: Sequence[Way], seeds: Sequence[int]) -> dict[Way, Judged]:
        """Each way at the level that is left: one that is confirmed leaves the others more."""
        return judge_sharing(
            lambda way, sharing: self._judge(way, seeds, sharing), ways, lambda one: one.is_good)

    def _judge(self, way: Way, seeds: Sequence[int], sharing: int) -> Judged:
        return judge(self.declaration.endpoint, self.outcomes(way, seeds),
                     self.outcomes(self.reference, seeds), sharing)

    def table(self, judged: Mapping[Way, Judged]) -> list[Trial]:
        """Every way that was run: those that are as good first, by cost; binary32 last."""
        ways = dict.fromkeys(way for way, _ in self._outcomes)
        trials = [self._trial(way, judged.get(way)) for way in ways]
        return sorted(trials, key=lambda t: (
            t.way == self.reference, not t.judged.is_good, t.judged.answer != CANNOT_TELL, t.cost,
            len(str(t.way)),
        ))

    def _trial(self, way: Way, judged: Judged | None) -> Trial:
        first = self._outcomes[way, 0]
        if way == self.reference:
            judged = Judged(REFERENCE, self.declaration.endpoint)
        elif judged is None:
            judged = Judged(CANNOT_TELL, self.declaration.endpoint, pairs=PICKING,
                            note=f"not confirmed; {self._estimate_text(way)} on {PICKING} pairs")
        counted = exceptions(first.report) if first.report else {}
        return Trial(
            way, judged, self.declaration.endpoint.measure(first), counted, self._cycles(way),
            self._bits(way), first.losses, first.error,
        )

    def _estimate_text(self, way: Way) -> str:
        estimate = self.estimate(way)
        return self.declaration.endpoint.text(estimate, sign=True) if math.isfinite(estimate) else (
            "it diverged")

    @property
    def runs(self) -> list[TrialRun]:
        """Every run, in the order in which they were made."""
        return [self._in_numbers(way, seed) for way, seed in self._outcomes]

    def _in_numbers(self, way: Way, seed: int) -> TrialRun:
        outcome = self._outcomes[way, seed]
        losses = outcome.losses if len(outcome.losses) > 1 else ()
        counted = exceptions(outcome.report) if outcome.report else {}
        role = {self.base: "base", self.reference: REFERENCE}.get(way, "tried")
        return TrialRun(
            str(way), role, seed, start_loss(losses), final_loss(losses),
            self.declaration.endpoint.measure(outcome), _cycles_of(outcome),
            _bits_of(way, outcome), **{
                name.lower(): counted.get(name, 0)
                for name in ("DIVBYZERO", "INVALID", "OVERFLOW", "UNDERFLOW")},
        )

    # Costs ----------------------------------------------------------------------------------

    def cost(self, way: Way) -> float:
        """Cycles and bits beside the base's."""
        return self._cycles(way) + self._bits(way)

    def _cycles(self, way: Way) -> float:
        ours, bases = (_cycles_of(self._outcomes[w, 0]) for w in (way, self.base))
        return ours / (bases or 1)

    def _bits(self, way: Way) -> float:
        ours, bases = (_bits_of(w, self._outcomes[w, 0]) for w in (way, self.base))
        return ours / (bases or 1)


def _is_settled(judged: Mapping[Way, Judged], way: Way) -> bool:
    return way in judged and settled(judged[way])


def _fault(outcome: Outcome, *, is_loss: bool) -> str:
    """Why a run is no measure of its way; "" where it is one."""
    if outcome.error:
        return outcome.error
    if is_loss and not outcome.losses:
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
        constants = dict.fromkeys((*changes.constants, *way.changes.constants))
        changes = replace(changes, constants=tuple(constants))
    free = replace(base, sr=sr, changes=changes)
    yield free
    yield replace(free, sr=True)
    yield replace(free, changes=replace(changes, wide_states=True))
    for way in ways:
        if way.policy != base.policy:
            yield replace(free, policy=way.policy)


def _cycles_of(outcome: Outcome) -> float:
    """Cycles of its products."""
    return float(sum(row["cycles"] for row in outcome.report.get("units", [])))


@usual_arithmetic
def _bits_of(way: Way, outcome: Outcome) -> float:
    """Bits of a parameter and two states of its optimiser, the mean over all layers' parameters."""
    layers = outcome.report.get("parameters") or {"": 1}
    bits = 0.0
    for layer, n in layers.items():
        held = way.policy.of(layer).param.bits
        bits += n * (held + 2 * (FP32.param.bits if way.changes.wide_states else held))
    return float(bits / sum(layers.values()))
