"""Diagnosis: why a program is harmed by its formats, by running it again and again.

Runs are bit-exact, so one run of a set of sites (`ipu.run.restoring`) is an experiment without
noise. All runs begin at the same seeds and stop after the same few steps.

    harm         the mean distance of the losses from binary32's, step by step, beside what
                 binary32's losses go through (their fall, or their deviation where that is more).
                 None where all are within a unit of the format that holds them, and the parameters
                 go where binary64's do: such losses cannot tell more.
    ill          the harm is above 5 %, or the run still shows a symptom of the first one's
                 (`ipu.run.causes`): what never reaches the loss counts too. A tensor that went
                 astray beside its shadow must be brought back.
    necessary    sites that must be given back together for the harm to go: none can be left out.
    sufficient   sites that bring it on by themselves, everything else in binary32.
    responses    in which steps the necessary sites must be given back, which of them interact, and
                 how many bits must be (`ipu.run.responses`).
    control      results of a necessary site moved by a unit in the last place, in place of being
                 given back. Where that cures the program too, the site is no cause.
    remedy       what the report advises, and the layers of the necessary sites in binary32: each
                 was run, and is told with the harm that is left.

Evidence    ASSUMED: the bound of harm.
"""

from __future__ import annotations

import ast
import difflib
import io
import math
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fpsim.records.formats import BINARY32, Format
from ipu.learn.policy import FP32, Policy
from ipu.run.advice import find_advice
from ipu.run.births import INFINITY, SATURATED
from ipu.run.budget import Budget, TimeOverError
from ipu.run.causes import (
    BESIDE_TRAINING,
    Cause,
    causes_forward,
    find_causes,
    harmless_losses,
    is_beside_training,
    of_same_line,
)
from ipu.run.changes import number_text, scale_text
from ipu.run.endpoints import Outcome
from ipu.run.harm import HARM, harm_of, unit_of
from ipu.run.motions import WAY_LOST, astray, motion_key, way_lost
from ipu.run.printed import PrintedNumber, negligible, printed_series
from ipu.run.responses import (
    Dose,
    SitePair,
    doses_above,
    harm_text,
    last_that_holds,
    pair_responses,
    smallest_window,
)
from ipu.run.restoring import (
    BACKWARD,
    FORWARD,
    LAYER,
    NOTHING_RESTORED,
    PARAMETERS,
    SUMS,
    UPDATE,
    PrecisionSite,
    Restoring,
    role_of,
    sites_of,
)
from ipu.run.subsets import smallest
from ipu.run.ways import Way

__all__ = ["Diagnosis", "Replay", "TriedRemedy", "diagnose", "patch_of", "plain_diagnosis"]

#: What a run with this report can give back to binary32.
Sites = Callable[[Mapping[str, Any]], Sequence[PrecisionSite]]
#: Runs the program in a way, with sites given back, and with shadow values or without.
Replay = Callable[[Way, Restoring, bool], Outcome]
#: Sites that are listed where time ran out before all were tried.
_LISTED = 6
#: Kind, layer, direction and operation of a birth.
Place = tuple[str, str, str, str]
#: Kinds of causes for which a shadow is asked; where the losses show no harm, one more.
_BY_SHADOW = frozenset(("drift", "states", "gradients vanish"))
_BY_WAY = _BY_SHADOW | {"updates"}

#: Kinds of causes by which a number stands still, so that any other one moves it again.
_STANDING = frozenset(("drift", "sums", "updates"))

#: Kinds of causes that wrong results of a pass forward have behind them, too.
_SYMPTOMS = frozenset(("updates", "gradients vanish"))

#: Of a harm that no rule explains; what is given back to mend it is told behind it.
_NO_CAUSE = "The losses part from binary32's, and no number left its range on the way."
#: Births of numbers beyond the range.
_BEYOND = (INFINITY, SATURATED)
#: Of a cause that reaches no loss and no gradient.
_BESIDE = "The training is binary32's, and a number beside it is wrong, as a metric is"
#: Formats of weights with which a run in binary32 is one.
_WIDE = ("binary32", "binary64")
#: Share of births of a place that binary32 has too where they are no format's.
_SAME = 0.1
#: Share of binary32's progress that it makes at least with a number replaced.
_TRAINS = 0.5
#: Remedies that are tried, at most.
_REMEDIES = 8
#: Powers of two of a loss scale above the smallest that cures.
_FREE = 2
#: Times that one looks for what shows behind a cause once that is mended.
_ROUNDS = 4
#: Modules that are tried as wholes where no advice cures; what a layer's name begins with.
_MODULES, _SEPARATOR = 3, re.compile(r"[./]")
_OUTSIDE = "all that stands outside of modules"
#: Layers of necessary sites that are offered as a policy, and sites that are paired, at most.
_LAYERS, _PAIRED = 6, 4
#: Roles whose results may be rounded to a dose; windows of steps are of the first two.
_OF_RESULTS = (FORWARD, BACKWARD, LAYER)


@dataclass(frozen=True)
class TriedRemedy:
    """A way in which the program was run.

    what      in words.
    harm      that is left; `cures`: nothing of the harm and of its symptoms is.
    losses    of its run; `reference`: of one in binary32 with the same numbers of the program
              replaced, where it was compared with that.
    before    the harm of the run as it is: where that is none, no remedy moves it.
    label     what is told in place of the way.
    """

    what: str
    way: Way
    harm: float
    cures: bool
    losses: Sequence[float] = ()
    reference: Sequence[float] = ()
    before: float = math.inf
    label: str = ""

    @property
    def verdict(self) -> str:
        """What became of the illness, in words."""
        if self.cures and self.before <= HARM:
            return "the symptom goes; the losses were binary32's without it too"
        if self.cures:
            return "cures"
        if self.harm <= HARM:
            return "the losses are binary32's, and a symptom of the report stays"
        return "does not cure"

    def __str__(self) -> str:
        return (f"{self.label or self.way}: {self.verdict}, harm {harm_text(self.harm)}. "
                f"{self.what}")


@dataclass
class Diagnosis:
    """What hurts a program, tested.

    answer      "healthy", "ill", "binary32 does not train here", or "cannot tell" where the program
                began no backward pass and prints no number, or stops with an error in binary32
                too.
    sentence    the first cause, in words.
    harm        of the run as it is.
    necessary, sufficient    sites; `is_smallest`: there was time to try each.
    window      steps in which the necessary sites must be given back, and the one behind the last;
                None: all, or it was not looked for.
    pairs       of necessary sites; `doses`: of bits given back to them.
    chance      necessary sites whose control cured the program too.
    remedies    those that cure first.
    beside      what the losses are compared with: binary32; of a program whose own tensors are
                narrow in every way, the shadow in binary64.
    runs        of the program, and the seconds that they took.
    report      that the sentence is about: of the run as it is, or of binary32's that fails.
    followed    of the program, where it is less than was asked for: steps, operations, seconds of
                the first run, and why there are no more (`ipu.run.replaying`).
    asks_status    a gradient scaler of the program reads the status register.
    harmless    what the run loses without harm, in words.
    makes_halves    the program makes tensors float16 or bfloat16 itself; `is_of_halves`: it is well
                with the policy's formats in their place.
    misprint    a number that the program prints and that is not binary32's, beside a training that
                is well; "" where there is none.
    measure     by which runs are compared: losses, or numbers that the program prints, whose
                differences are none where they are negligible.
    """

    way: Way
    steps: int
    answer: str = "healthy"
    sentence: str = ""
    harm: float = 0.0
    losses: Sequence[float] = ()
    reference: Sequence[float] = ()
    necessary: list[PrecisionSite] = field(default_factory=list)
    sufficient: list[PrecisionSite] = field(default_factory=list)
    is_smallest: bool = True
    window: tuple[int, int] | None = None
    pairs: list[SitePair] = field(default_factory=list)
    doses: list[Dose] = field(default_factory=list)
    chance: list[PrecisionSite] = field(default_factory=list)
    remedies: list[TriedRemedy] = field(default_factory=list)
    n_sites: int = 0
    runs: int = 0
    seconds: float = 0.0
    beside: str = "binary32"
    asks_status: bool = False
    makes_halves: bool = False
    is_of_halves: bool = False
    misprint: str = ""
    harmless: list[str] = field(default_factory=list)
    measure: str = "losses"
    negligible: float = 0.0
    report: Mapping[str, Any] = field(default_factory=dict)
    followed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def left_out(self) -> str:
        """Why no more of the program was followed; "" where all steps were."""
        return str(self.followed.get("why", ""))

    @property
    def cure(self) -> TriedRemedy | None:
        """The first remedy that cures."""
        return next((remedy for remedy in self.remedies if remedy.cures), None)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    @property
    def so_far(self) -> str:
        """The page while sites are still searched for."""
        return "\n".join((
            *self._first_lines(), *(f"remedy {remedy}" for remedy in self.remedies),
            f"after {self.runs} runs, {self.seconds:.0f} s; "
            + ("sites are searched for" if self.remedies else "remedies are tried"),
        ))

    def lines(self) -> Iterator[str]:
        """The page, in lines."""
        yield from self._first_lines()
        if self.answer == "ill":
            yield from self._tested()
        yield f"{self.runs} runs, {self.seconds:.0f} s"

    def _first_lines(self) -> Iterator[str]:
        halves = ", the program makes halves itself" if self.makes_halves else ""
        yield (f"{self.way}{halves}, the first {self.steps} steps beside {self.beside}: "
               f"{self.answer}")
        yield f"  {self.sentence}"
        if self.answer != "cannot tell":
            loss = "loss " if self.measure == "losses" else ""
            yield (
                f"  harm {harm_text(self.harm)} of what {self.beside}'s {self.measure} go through; "
                f"{loss}{_losses(self.losses)}, {self.beside} {_losses(self.reference)}"
            )
        if self.misprint:
            yield f"  {self.misprint}"
        yield from (f"  without harm: {text}" for text in self.harmless)
        if self.left_out:
            yield f"  {self.left_out}"

    def _tested(self) -> Iterator[str]:
        partly = "" if self.is_smallest else " (time ran out: not all of them may be needed)"
        if self.necessary:
            yield f"necessary: the harm goes if these are given back to binary32{partly}:"
            yield from self._listed(self.necessary)
            if len(self.necessary) > 1 and self.is_smallest:
                yield ("  they interact: with any one of them left low the harm, or its symptom, "
                       "stays")
            yield from self._responses()
        elif self.n_sites and not self.is_smallest:
            yield f"no time was left to search {self.n_sites} sites; give more --seconds"
        else:
            yield self.without_sites
        if self.sufficient:
            yield f"sufficient: it comes if only these are low{partly}:"
            yield from self._listed(self.sufficient)
        for site in self.chance:
            yield f"chance: a unit in the last place in {site} cures it too, so that is no cause"
        for remedy in self.remedies:
            yield f"remedy {remedy}"
        if not self.remedies:
            yield "no remedy is known that could be tried"

    @property
    def doses_told(self) -> str:
        """Whether range or digits are the matter; "" where neither alone is."""
        return _kind_of_dose(self.doses, self.way.policy.default.activations)

    @property
    def without_sites(self) -> str:
        """Why no sites are necessary."""
        if self.is_of_halves:
            return ("necessary: tensors that the program makes float16; the harm goes where they "
                    "have the policy's formats")
        if self.beside != "binary32":
            return ("the program's own narrow tensors are no sites; a layer that a way names "
                    "computes them in binary32")
        if not self.n_sites:
            return "the program's own narrow tensors are no sites"
        within = f"with all {self.n_sites} sites in binary32 the harm stays: "
        if self.cure is not None:
            return f"{within}it is in a tensor that belongs to no layer"
        return f"{within}no format is its cause"

    def _listed(self, sites: Sequence[PrecisionSite]) -> Iterator[str]:
        n = len(sites) if self.is_smallest else _LISTED
        yield from (f"  {site}" for site in sites[:n])
        if len(sites) > n:
            yield f"  and {len(sites) - n} more; more --seconds leave fewer"

    def _responses(self) -> Iterator[str]:
        if self.window is not None:
            first, behind = self.window
            which = f"step {first}" if behind == first + 1 else f"steps {first} to {behind - 1}"
            yield f"  in {which} alone; in the others they may stay low"
        for pair in self.pairs:
            if pair.interacts:
                neither, one, other, both = map(harm_text, pair.harms)
                yield (f"pair {pair.first} and {pair.second}: harm {neither} with neither given "
                       f"back, {one} and {other} with one, {both} with both")
        yield from (f"dose {dose}" for dose in self.doses)
        if self.doses_told:
            yield self.doses_told


def _kind_of_dose(doses: Sequence[Dose], low: Format) -> str:
    """Whether range or digits are the matter; "" where neither alone is."""
    cures = {dose.format.exponent_bits > low.exponent_bits for dose in doses if dose.cures}
    if len(cures) != 1 or len({d.format.exponent_bits > low.exponent_bits for d in doses}) < 2:
        return ""
    if True in cures:
        return "the matter is range: more bits of exponent cure, more digits do not"
    return "the matter is digits: more of them cure, more bits of exponent do not"


def _losses(losses: Sequence[float]) -> str:
    return f"{losses[0]:.4g} → {losses[-1]:.4g}" if losses else "is not told"


class _Experiments:
    """Runs of one program, each made once."""

    def __init__(
        self, replay: Replay, way: Way, budget: Budget, sites: Sites | None,
        check: Callable[[Way], object],
        outcomes: dict[tuple[Way, Restoring], Outcome] | None = None,
    ) -> None:
        self.way, self._check = way, check
        self.sites = sites or partial(sites_of, policy=way.policy)
        self._replay, self.budget = replay, budget
        self._outcomes = {} if outcomes is None else outcomes
        self._has_shadow = True
        self.reference = self.outcome(_binary32(way))
        self.base = self.outcome(way)
        #: Whether the program's own narrow tensors stay narrow in binary32's run.
        self.is_narrow = _has_narrow_numbers(self.reference.report)
        #: What a program without losses prints, that is furthest from what binary32's run does.
        self.printed: PrintedNumber | None = None
        self.negligible = 0.0
        self.losses: Sequence[float] = self.reference.losses
        if not (self.losses or self.base.losses):
            self._compare_printed()
        elif self.base.report and way_lost(self.base.report) <= WAY_LOST:
            self.negligible = unit_of(self.base.losses)
        self._of_binary32: dict[Place, int] = {}
        #: Births of a training that is well, which none of the run's numbers shows.
        self._unseen: set[Place] = set()
        #: The harm of a run in which only the site of a birth is low.
        self._alone: dict[Place, float] = {}
        of_reference: set[str] = set()
        if self.is_narrow:
            self.losses = _losses_of_shadow(self.base.report)
        else:
            for row in self.reference.report.get("births", ()):
                place = _place(row)
                self._of_binary32[place] = self._of_binary32.get(place, 0) + row["count"]
            of_reference = _kinds(self.reference.report)
        self._kinds_of_reference = of_reference
        #: What a report is told of binary32's run; {} where that trains nothing.
        self._of_reference: dict[str, Any] = {}
        if not self.is_narrow and self.losses and "diverges" not in of_reference and (
                np.isfinite(self.losses).all()):
            self._of_reference = {"jumps": self.reference.report.get("jumps", {}),
                                  "losses": list(self.losses)}
        self._unseen = self._find_unseen()
        self.causes = self._find_causes()
        self.symptoms = {cause.kind for cause in self.causes}
        #: By which sites are told apart: several symptoms need not have the same ones.
        self._first = {c.kind for c in self.causes[:1]} & self.symptoms
        #: Tensors that went astray, which a cure must bring back.
        self._astray: frozenset[tuple[Any, ...]] = frozenset()
        if any(_is_of_average(cause) for cause in self.causes):
            self._astray = frozenset(map(motion_key, astray(self.base.report)))
            self.symptoms.add("drift")
            self._first.add("drift")
        by_shadow = _BY_SHADOW if self.harm(self.base) > HARM else _BY_WAY
        self._has_shadow = bool(by_shadow & self.symptoms)

    def _find_unseen(self) -> set[Place]:
        """Births in passes forward that left their range, where losses and parameters are well.

        As of a square that a selection leaves out again. What is wrong beside the training, as a
        metric, is born where no gradients are recorded, or shows in what the program prints.
        """
        report = self.base.report
        if not (self.base.losses and report) or self.harm(self.base) > HARM or not (
                way_lost(report) <= WAY_LOST):
            return set()
        rows = [row for row in report.get("births", ()) if row["kind"] in _BEYOND]
        beside = any(row["direction"] in BESIDE_TRAINING and not row["harmless"] for row in rows)
        if not (beside or self._prints_the_same()):
            return set()
        return {_place(row) for row in rows if row["direction"] == "forward"}

    def _prints_the_same(self) -> bool:
        """Whether all numbers that the run prints are near binary32's."""
        reference, ours = (printed_series(o.printed) for o in (self.reference, self.base))
        return all(harm_of(ours.get(key, ()), row, negligible(reference, key)) <= HARM
                   for key, row in reference.items())

    @property
    def misprint(self) -> str:
        """The number that the program prints which is furthest from binary32's; "": none is far."""
        reference, ours = (printed_series(o.printed) for o in (self.reference, self.base))
        harms = {key: harm_of(ours.get(key, ()), row, negligible(reference, key))
                 for key, row in reference.items()}
        worst = max(harms, key=lambda key: harms[key], default=None)
        if worst is None or harms[worst] <= HARM or not ours.get(worst):
            return ""
        return (f"the program prints {ours[worst][-1]:g} where binary32's run prints "
                f"{reference[worst][-1]:g}, in {worst.line!r}")

    def as_written(self) -> _Experiments | None:
        """Runs in which float16 tensors of the program are what it makes them, if it is ill then.

        The policy's formats in their place may be wider: a sum of halves is one in binary32. None
        where the program makes none, and where it is ill with the policy's formats already.
        """
        changes = self.way.changes
        is_asked = changes.halves_by_policy and self.base.report.get("makes_halves", False)
        if not is_asked or self.reference.error or self.is_ill(self.base) or not self.has_time():
            return None
        way = replace(self.way, changes=replace(changes, halves_by_policy=False))
        with suppress(TimeOverError):
            runs = _Experiments(
                self._replay, way, self.budget, lambda report: (), self._check, self._outcomes)
            return runs if runs.is_ill(runs.base) else None
        return None

    def _find_causes(self) -> list[Cause]:
        """Those of the run as it is that binary32's does not show."""
        return [
            cause for cause in find_causes(self.report)
            if cause.kind not in self._kinds_of_reference
        ] if self.base.report else []

    def weigh(self) -> None:
        """Of operations of one line that leave their range together, find the harm of each alone.

        One that does none, beside another one that does, is no cause.
        """
        first = self.causes[0].row if self.causes else {}
        births = [row for row in self.report.get("births", ()) if not row["harmless"]]
        if not any(row["number"] == first.get("number") for row in births):
            return
        sites = self.all_sites
        by_site: dict[PrecisionSite, list[Mapping[str, Any]]] = {}
        for row in of_same_line(first, births):
            by_site.setdefault(
                PrecisionSite(row["layer"], role_of(row["direction"])), []).append(row)
        if len(by_site) < 2 or not by_site.keys() <= set(sites):
            return
        harms: dict[Place, float] = {}
        for site, rows in by_site.items():
            low = Restoring(frozenset(sites) - {site})
            harms |= dict.fromkeys(map(_place, rows), self.harm(self.outcome(self.way, low)))
        if max(harms.values()) > HARM:
            self._alone = harms
            self.causes = self._find_causes()

    @property
    def all_sites(self) -> Sequence[PrecisionSite]:
        """What runs can give back."""
        return self.sites(_with_all_layers(self.base.report, self.reference.report))

    def outcome(self, way: Way, restoring: Restoring = NOTHING_RESTORED) -> Outcome:
        key = way, restoring
        if key not in self._outcomes:
            self._outcomes[key] = self._run(way, restoring, has_shadow=self._has_shadow)
        return self._outcomes[key]

    def _run(self, way: Way, restoring: Restoring, *, has_shadow: bool) -> Outcome:
        """A run within the budget.

        Raises    TimeOverError where it is over.
        """
        if self.budget.is_over:
            raise TimeOverError
        begin = self.budget.spent
        try:
            outcome = self._replay(way, restoring, has_shadow)
        except TimeOverError:
            self.budget.is_over = True
            raise
        self.budget.note(self.budget.spent - begin)
        return outcome

    def _compare_printed(self) -> None:
        """Compare what the runs print; what two runs in binary32 print otherwise is left out."""
        reference = printed_series(self.reference.printed)
        ours = printed_series(self.base.printed)
        harms = {
            key: harm_of(ours.get(key, ()), row, negligible(reference, key))
            for key, row in reference.items()
        }
        if max(harms.values(), default=0.0) > HARM:
            again = self._replay(_binary32(self.way), NOTHING_RESTORED, False)
            same = printed_series(again.printed)
            harms = {key: harm for key, harm in harms.items() if same.get(key) == reference[key]}
        self.printed = max(harms, key=lambda key: harms[key], default=None)
        if self.printed is not None:
            self.losses = reference[self.printed]
            self.negligible = negligible(reference, self.printed)

    @property
    def has_steps(self) -> bool:
        """Whether the program takes steps of an optimiser."""
        return bool(self.reference.report.get("steps", len(self.reference.losses)))

    def losses_of(self, outcome: Outcome) -> Sequence[float]:
        """By which a run is compared: its losses, or numbers that it prints."""
        if self.printed is None:
            return outcome.losses
        return printed_series(outcome.printed).get(self.printed, ())

    def harm(self, outcome: Outcome) -> float:
        if outcome.error:
            return math.inf
        return harm_of(self.losses_of(outcome), self.losses, self.negligible)

    def is_ill(self, outcome: Outcome) -> bool:
        return self.harm(outcome) > HARM or self.shows_symptoms(outcome)

    def shows_symptoms(self, outcome: Outcome) -> bool:
        """Whether a run has causes of the first run's kinds."""
        return bool(self.symptoms & self._kinds(outcome))

    def losses_with_constants(self, way: Way) -> Sequence[float]:
        """Of binary32 with the numbers that a way replaces; none where it then trains less.

        A larger floor below a logarithm that all numbers reach stops a NaN, and nothing is learned.
        """
        changes = replace(self.way.changes, constants=way.changes.constants)
        outcome = self.outcome(_binary32(replace(self.way, changes=changes)))
        losses = () if outcome.error else self.losses_of(outcome)
        if len(losses) != len(self.losses) or not np.isfinite(losses).all():
            return ()
        gone, full = (abs(row[0] - row[-1]) for row in (losses, self.losses))
        return losses if gone > _TRAINS * full else ()

    @property
    def report(self) -> dict[str, Any]:
        """Of the run as it is."""
        return self.beside_binary32(self.base)

    def _kinds(self, outcome: Outcome) -> set[str]:
        kinds = _kinds(self.beside_binary32(outcome))
        rows = astray(outcome.report, is_mended=True) if self._astray else ()
        return kinds | {"drift"} if any(motion_key(row) in self._astray for row in rows) else kinds

    def beside_binary32(self, outcome: Outcome) -> dict[str, Any]:
        """A report with its harm, in which births that binary32 has in the same place do none.

        It must have a good part of them: a term or two are absorbed in any format.
        """
        report = outcome.report
        return {
            **report, "harm": self.harm(outcome), "binary32": self._of_reference,
            "births": [self._judged(row) for row in report.get("births", ())],
        }

    def _judged(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A birth with the harm that it does alone, where that was tried."""
        of_binary32 = _place(row) in self._unseen or (
            self._of_binary32.get(_place(row), 0) > _SAME * row["count"])
        alone = self._alone.get(_place(row))
        if alone is None:
            return {**row, "harmless": row["harmless"] or of_binary32}
        return {**row, "harmless": row["harmless"] or alone <= HARM, "alone": alone}

    def explained(self, way: Way) -> dict[str, Any]:
        """The report of a way; with a shadow where its harm has no other cause."""
        report = self.beside_binary32(self.outcome(way))
        is_dark = report["harm"] > HARM and not report.get("shadow") and self.has_time()
        if is_dark and "losses" in report and not find_causes(report):
            with suppress(TimeOverError):
                outcome = self._run(way, NOTHING_RESTORED, has_shadow=True)
                self._outcomes[way, NOTHING_RESTORED] = outcome
                return self.beside_binary32(outcome)
        return report

    def is_harmed(self, outcome: Outcome) -> bool:
        """Whether it is ill of the first cause."""
        return self.harm(outcome) > HARM or bool(
            (self._first or self.symptoms) & self._kinds(outcome))

    def is_ill_with(
        self, sites: Sequence[PrecisionSite], moved: Sequence[PrecisionSite] = ()
    ) -> bool:
        """Whether it is ill of the first cause with these sites in binary32."""
        return self.is_harmed(self.outcome(self.way, Restoring(frozenset(sites), frozenset(moved))))

    @property
    def stands_still(self) -> bool:
        """Whether the first cause is sums that leave a number as it was."""
        return bool(self.causes) and self.causes[0].kind in _STANDING

    def has_time(self) -> bool:
        return self.budget.has_time()

    def has_time_to_search(self) -> bool:
        return self.budget.has_time_to_search()

    def can_run(self, way: Way) -> bool:
        try:
            self._check(way)
        except ValueError:
            return False
        return True

    @property
    def runs(self) -> int:
        return len(self._outcomes)


def diagnose(
    replay: Replay, way: Way, steps: int, budget: Budget | None = None,
    sites: Sites | None = None, check: Callable[[Way], object] = str, *, has_windows: bool = False,
    tell: Callable[[Diagnosis], object] = id,
) -> Diagnosis:
    """Why a program is harmed in a way, and what mends it; each statement was run.

    replay     runs the program, for so many steps and from the same seeds; its report has counted.
    budget     of the runs; None: as much as they take.
    sites      that a run with a report can give back; None: `sites_of` of the way's policy.
    check      raises ValueError for a way in which the program cannot be run.
    has_windows    sites may be given back in some of the steps alone.
    tell       is called with what an ill program's diagnosis is so far: after the first two runs,
               and when the advice has been tried.
    """
    runs = by_policy = _Experiments(replay, way, budget or Budget(), sites, check)
    runs = by_policy.as_written() or by_policy
    result = Diagnosis(way, steps, losses=runs.losses_of(runs.base), reference=runs.losses)
    result.is_of_halves = runs is not by_policy
    result.negligible = runs.negligible
    if runs.printed is not None:
        result.measure = f"numbers in {runs.printed.line!r}"
    result.followed = runs.reference.report.get("followed", {})
    result.steps = result.followed.get("steps") or steps
    result.asks_status = bool(runs.base.report and runs.base.report.get("asks_status"))
    result.makes_halves = runs.is_narrow or any(
        report.get("makes_halves", False) for report in (runs.base.report, runs.reference.report)
        if report)
    result.beside = "binary64" if runs.is_narrow else "binary32"
    result.harm = runs.harm(runs.base)
    result.sentence = _sentence(runs.causes, result.harm, runs.base)
    result.report = runs.report if runs.base.report else {}
    result.harmless = list(harmless_losses(runs.report)) if runs.base.report else []

    def tell_so_far() -> None:
        result.runs, result.seconds = runs.runs, runs.budget.spent
        tell(result)

    if not np.isfinite(runs.losses).all() or "diverges" in _kinds(runs.reference.report):
        result.answer = f"{result.beside} does not train here"
        result.report = runs.reference.report
        result.sentence = _sentence(find_causes(result.report), result.harm, runs.reference)
    elif runs.reference.error:
        result.answer = "cannot tell"
        result.sentence = f"The program stops in binary32 too: {runs.reference.error}"
    elif runs.is_ill(runs.base):
        result.answer = "ill"
        if result.harm <= HARM and any(map(is_beside_training, runs.causes[:1])):
            result.misprint = runs.misprint
        if result.is_of_halves:
            result.remedies.append(_without_halves(by_policy, result.harm))
        else:
            _treat(result, runs, tell_so_far, has_windows=has_windows)
    elif not result.reference:
        result.answer = "cannot tell"
        within = "" if result.left_out else f" in {steps} steps"
        result.sentence = (f"No backward pass began{within}, and no number was printed: nothing "
                           "to compare.")
    result.runs, result.seconds = runs.runs, runs.budget.spent
    return result


def _without_halves(by_policy: _Experiments, harm: float) -> TriedRemedy:
    """Tensors of the program's own that the policy decides of, which was run."""
    base = by_policy.base
    return TriedRemedy(
        "Make the tensors float32 that the program makes float16 itself", by_policy.way,
        by_policy.harm(base), True, by_policy.losses_of(base), before=harm,
        label=f"{by_policy.way} without the program's halves")


def _treat(
    result: Diagnosis, runs: _Experiments, tell_so_far: Callable[[], None], *, has_windows: bool
) -> None:
    """Remedies and sites of a program that is ill."""
    tell_so_far()
    if runs.has_time():
        with suppress(TimeOverError):
            runs.weigh()
    result.sentence = _sentence(runs.causes, result.harm, runs.base)
    result.report = runs.report if runs.base.report else {}
    # Before sites are searched: a remedy takes one run, sites take many. The first one always has
    # time, as what is told of a program without one is of little use.
    _try(_advised(runs, runs.report, runs.way), runs, result.remedies, first=True)
    _try(_together(result.remedies, runs), runs, result.remedies)
    _try_behind(runs, result.remedies)
    if not any(remedy.cures for remedy in result.remedies):
        _try(_by_module(runs), runs, result.remedies, first=True)
    _try(_without_needless(result.remedies, runs), runs, result.remedies)
    _sort(result.remedies, runs.way)
    with suppress(TimeOverError):
        _try_smallest_scale(runs, result.remedies)
    tell_so_far()
    with suppress(TimeOverError):
        _find_sites(result, runs)
    if result.sentence == _NO_CAUSE and result.necessary and result.is_smallest:
        places = ", ".join(map(str, result.necessary[:_LISTED]))
        result.sentence += f" Precision is lost in {places}."
    tested = _tested_cause(result, runs)
    if tested is not None:
        result.sentence = _sentence([tested], result.harm, runs.base)
    _try(_with_wide_layers(result, runs), runs, result.remedies)
    _try(_together(result.remedies, runs), runs, result.remedies)
    with suppress(TimeOverError):
        _find_responses(result, runs, has_windows=has_windows)
    _sort(result.remedies, runs.way)


def _tested_cause(result: Diagnosis, runs: _Experiments) -> Cause | None:
    """What goes wrong forward in the necessary sites, where updates or gradients were told first.

    They are lost behind a layer that gives too small or too large results, too. If they are no
    longer when that layer is given back, they are a symptom of its.
    """
    roles = {site.role for site in result.necessary}
    if not runs.causes or runs.causes[0].kind not in _SYMPTOMS or roles != {FORWARD} or (
            not result.is_smallest):
        return None
    layers = {site.layer for site in result.necessary}
    return next(iter(causes_forward(runs.report, layers)), None)


def _sort(remedies: list[TriedRemedy], base: Way) -> None:
    """Those that cure in the order of the advice, the others by the harm that they leave.

    One that does all of another, and more, comes behind those of which each part is needed.
    """
    pieces = [frozenset(_pieces(remedy.way, base)) for remedy in remedies if remedy.cures]

    def rank(remedy: TriedRemedy) -> tuple[bool, float]:
        if not remedy.cures:
            return True, remedy.harm
        parts = frozenset(_pieces(remedy.way, base))
        return False, any(fewer and fewer < parts for fewer in pieces)

    remedies.sort(key=rank)


def _sentence(causes: Sequence[Cause], harm: float, outcome: Outcome) -> str:
    """The first cause, and what stopped the program."""
    if causes and harm <= HARM and is_beside_training(causes[0]):
        text = f"{_BESIDE}: {causes[0].sentence}."
    elif causes:
        text = f"{causes[0].sentence}."
    elif outcome.error:
        return outcome.error
    elif harm > HARM:
        text = _NO_CAUSE
    else:
        text = "No harm was found."
    return f"{text} The program stops: {outcome.error}" if outcome.error else text


def _has_narrow_numbers(report: Mapping[str, Any]) -> bool:
    """Whether parameters, activations or gradients have fewer bits than binary32's."""
    exponents = report.get("exponents", {}) if report else {}
    return any(
        row["format"] not in _WIDE
        for kind in ("weights", "activations", "gradients") for row in exponents.get(kind, ())
    )


def _losses_of_shadow(report: Mapping[str, Any]) -> list[float]:
    """Losses in binary64, the mean over the micro-batches of a step.

    None where they are not finite either: a number of the program, as an eps, is zero in its type.
    """
    steps: dict[int, list[float]] = {}
    for row in report.get("shadow", {}).get("losses", ()):
        steps.setdefault(row["step"], []).append(row["shadow"])
    losses = [float(np.mean(of_step)) for of_step in steps.values()]
    return losses if np.isfinite(losses).all() else []


def _is_of_average(cause: Cause) -> bool:
    """Whether an average of an optimiser's, or of the program's weights, loses its terms."""
    return cause.kind == "drift" or (cause.kind in ("constant", "sums") and cause.row.get(
        "direction", "optimizer") == "optimizer" and cause.row.get("detail") in ("one", "", None))


def _kinds(report: Mapping[str, Any]) -> set[str]:
    """Kinds of the causes that a run shows; of none without a report."""
    return {cause.kind for cause in find_causes(report)} if "losses" in report else set()


def _place(row: Mapping[str, Any]) -> Place:
    """By which a birth is known in another run: binary32's own are no format's."""
    return row["kind"], row["layer"], row["direction"], row["operation"]


def _binary32(way: Way) -> Way:
    """All in binary32, also what the program itself makes narrower, where a front end can."""
    return replace(way, policy=FP32, sr=False).with_policies


def _find_sites(result: Diagnosis, runs: _Experiments) -> None:
    """The necessary and the sufficient sites, and those that chance cures."""
    sites = runs.all_sites
    result.n_sites, result.is_smallest = len(sites), not sites
    if not sites or not runs.has_time():
        return
    result.is_smallest = runs.is_ill_with(sites)
    if result.is_smallest:
        return

    def cures(back: Sequence[PrecisionSite]) -> bool:
        with suppress(TimeOverError):
            return not runs.is_ill_with(back)
        return False

    def harms(low: Sequence[PrecisionSite]) -> bool:
        with suppress(TimeOverError):
            return runs.is_ill_with([site for site in sites if site not in low])
        return False

    result.necessary = list(sites)
    suspects = next(_few_that_cure(result, runs, sites), sites)
    result.necessary, is_smallest = smallest(
        _one_role(suspects, cures), cures, runs.has_time_to_search)
    likely = _named(runs, sites), result.necessary
    enough = next((few for few in likely if few and harms(few)), None) or _one_role(sites, harms)
    result.sufficient, is_tried = smallest(enough, harms, runs.has_time_to_search)
    result.is_smallest = is_smallest and is_tried and not runs.budget.is_over
    if runs.stands_still:  # a unit in the last place moves what stands still
        return
    result.chance = [
        site for site in result.necessary
        if site.role not in (UPDATE, SUMS) and runs.has_time() and not runs.is_ill_with((), [site])
    ]


def _named(runs: _Experiments, sites: Sequence[PrecisionSite]) -> list[PrecisionSite]:
    """The site that the first cause names, if there is one."""
    row = runs.causes[0].row if runs.causes else {}
    role = role_of(row.get("direction", FORWARD))
    layer = "optimizer" if role == UPDATE else row.get("layer", "")
    places = PrecisionSite(layer, role), PrecisionSite(layer, LAYER)
    return [site for site in sites if site in places]


def _few_that_cure(
    result: Diagnosis, runs: _Experiments, sites: Sequence[PrecisionSite]
) -> Iterator[Sequence[PrecisionSite]]:
    """Few sites that cure together, from which the search may begin; the fewest first."""
    cures = [_restored_by(remedy.way, runs.way, sites)
             for remedy in result.remedies if remedy.cures]
    for few in (_named(runs, sites), *sorted(cures, key=len)):
        if few and runs.has_time_to_search() and not runs.is_ill_with(few):
            yield few
    suspects = _suspects(runs, sites)
    if suspects:
        yield suspects


def _restored_by(
    way: Way, base: Way, sites: Sequence[PrecisionSite]
) -> list[PrecisionSite]:
    """The sites that a way computes in binary32 and its base does not."""
    def is_wide(site: PrecisionSite, way: Way) -> bool:
        policy = way.policy.of(site.layer)
        if site.role == UPDATE:
            return way.changes.wide_states
        return {PARAMETERS: policy.param, SUMS: policy.partials}.get(
            site.role, policy.compute) == BINARY32

    return [site for site in sites if is_wide(site, way) and not is_wide(site, base)]


def _with_all_layers(report: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """A report with binary32's layers and directions too: a run counts until its first NaN."""
    layers, others = report["layers"], reference.get("layers", {})
    return {**report, "layers": {
        name: {**others.get(name, {}), **layers.get(name, {})} for name in {**layers, **others}}}


def _find_responses(result: Diagnosis, runs: _Experiments, *, has_windows: bool) -> None:
    """The window, the pairs and the doses of the necessary sites, as far as there is time."""
    sites = frozenset(result.necessary)
    if not sites or not result.is_smallest:
        return

    def restored(**choices: Any) -> Outcome:
        return runs.outcome(runs.way, Restoring(sites, **choices))

    roles = {site.role for site in sites}
    if has_windows and runs.has_steps and roles <= {FORWARD, BACKWARD} and runs.has_time():
        result.window = smallest_window(
            result.steps, lambda steps: not runs.is_harmed(restored(steps=steps)))
    if len(sites) <= _PAIRED:
        result.pairs.extend(pair_responses(
            result.necessary, lambda back: runs.harm(runs.outcome(runs.way, Restoring(back))),
            runs.has_time))
    low = runs.way.policy.default.activations
    for fmt in doses_above(low) if roles <= set(_OF_RESULTS) else ():
        if runs.has_time():
            outcome = restored(dose=fmt)
            result.doses.append(Dose(fmt, runs.harm(outcome), not runs.is_harmed(outcome)))


def _suspects(
    runs: _Experiments, sites: Sequence[PrecisionSite]
) -> Sequence[PrecisionSite]:
    """Sites where numbers left their range, if the harm goes with them; else none.

    A NaN hides what would go wrong behind it: with the sites of its births in binary32 other births
    may show, whose sites are added. So the search begins with few sites in place of all.
    """
    suspects: list[PrecisionSite] = []
    outcome = runs.base
    for _ in range(_ROUNDS):
        places = _sites_of_births(runs.beside_binary32(outcome))
        new = [site for site in sites if site in places and site not in suspects]
        if not new or not runs.has_time_to_search():
            return ()
        suspects += new
        outcome = runs.outcome(runs.way, Restoring(frozenset(suspects)))
        if not runs.is_harmed(outcome):
            return suspects
    return ()


def _sites_of_births(report: Mapping[str, Any]) -> set[PrecisionSite]:
    """Where numbers left their range with harm; the arithmetic of optimisers is one site."""
    places: set[PrecisionSite] = set()
    for row in report["births"]:
        role = role_of(row["direction"])
        if not row["harmless"]:
            places |= {PrecisionSite("optimizer", UPDATE)} if role == UPDATE else {
                PrecisionSite(row["layer"], role), PrecisionSite(row["layer"], LAYER)}
    return places


def _one_role(
    sites: Sequence[PrecisionSite], holds: Callable[[Sequence[PrecisionSite]], bool]
) -> Sequence[PrecisionSite]:
    """The sites of one role, where it holds for them alone; else all."""
    for role in dict.fromkeys(site.role for site in reversed(sites)):
        of_role = [site for site in sites if site.role == role]
        if holds(of_role):
            return of_role
    return sites


def _advised(runs: _Experiments, report: Mapping[str, Any], base: Way) -> dict[Way, str]:
    """Ways that the report of a way advises, each with its reason."""
    proposed: dict[Way, str] = {}
    for item in find_advice(report, base):
        for way in item.ways:
            proposed.setdefault(replace(way, changes=replace(
                way.changes, halves_by_policy=runs.way.changes.halves_by_policy)),
                _meaning(way, base, item.what) or item.what)
    return dict(list(proposed.items())[:_REMEDIES])


def _by_module(runs: _Experiments) -> dict[Way, str]:
    """Whole modules in binary32, and all operations outside of them: few runs, told in few words.

    Those with most of the shadow's error come first, then those of the most layers.
    """
    layers = [name for name in runs.base.report.get("layers", ()) if name and name != "optimizer"]
    parts: dict[str, list[str]] = {}
    for name in layers:
        parts.setdefault(_SEPARATOR.split(name)[0], []).append(name)
    shares = Counter[str]()
    for row in runs.base.report.get("shadow", {}).get("layers", ()):
        shares[_SEPARATOR.split(row["layer"])[0]] += row["share"]
    ways: dict[Way, str] = {}
    for part in sorted(parts, key=lambda part: (-shares[part], -len(parts[part])))[:_MODULES]:
        way = runs.way.with_policies
        for pattern in dict.fromkeys(
                part if name == part else part + name[len(part)] + "*" for name in parts[part]):
            way = way.with_layer(pattern)
        ways[way] = f"Compute {_OUTSIDE if part == 'aten' else part} in binary32"
    return ways


def _meaning(way: Way, base: Way, advice: str) -> str:
    """What a way changes of a base, where the advice names several; "" of others."""
    pieces = list(_pieces(way, base))
    if way.policy.default.param != base.policy.default.param:
        return "Keep parameters, and what optimisers compute of them, in binary32"
    if pieces == [("wide_states", True)]:
        return ("Let the framework's optimisers compute, and keep their states, in binary32; "
                "parameters stay as they are")
    if len(pieces) == 1 and pieces[0][0] == "eps":
        return f"Set eps={number_text(pieces[0][1])}"
    if [name for name, _ in pieces] == ["constants"]:
        old, new = map(number_text, way.changes.constants[-1])
        return f"Replace the constant {old} by {new}"
    if pieces and advice.startswith("Replace ") and all(
            isinstance(value, Policy) for _, value in pieces):
        return f"Compute {', '.join(name for name, _ in pieces)} in binary32"
    return "Round stochastically" if pieces == [("sr", True)] else ""


def _try_behind(runs: _Experiments, remedies: list[TriedRemedy]) -> None:
    """Where no remedy cures: what is advised once the first cause is mended, round by round.

    A remedy has mended it where the run with it begins with another cause.
    """
    told, tried = {_first_place(runs.causes)}, 0
    for _ in range(_ROUNDS):
        if any(remedy.cures for remedy in remedies):
            return
        latest, tried = remedies[tried:], len(remedies)
        for remedy in latest:
            report = runs.explained(remedy.way)
            causes = find_causes(report)
            place = _first_place(causes)
            if place in told or not causes:
                continue
            told.add(place)
            behind = _advised(runs, report, remedy.way)
            _try({way: f"{remedy.what}. Then: {what}" for way, what in behind.items()},
                 runs, remedies)


def _try_smallest_scale(runs: _Experiments, remedies: list[TriedRemedy]) -> None:
    """In place of a loss scale that cures, a few times the smallest power of two that does.

    It is sought by halving between the present scale and the one that cures, where these runs take
    no more than half of the time that is left.
    """
    cure = next((remedy for remedy in remedies if remedy.cures), None)
    changes = runs.way.changes
    if cure is None or cure.way != replace(runs.way, changes=replace(
            changes, loss_scale=cure.way.changes.loss_scale)):
        return
    power = round(math.log2(cure.way.changes.loss_scale / changes.loss_scale))
    trials = math.ceil(math.log2(power)) if power > 1 else 0
    if not trials or trials * runs.budget.spent / runs.runs > runs.budget.left / 2:
        return

    def scaled(exponent: int) -> Way:
        return replace(runs.way, changes=replace(
            changes, loss_scale=changes.loss_scale * 2.0**exponent))

    smallest = 1 + last_that_holds(
        lambda exponent: runs.is_ill(runs.outcome(scaled(exponent))), power)
    if smallest + _FREE < power:
        text = scale_text(changes.loss_scale * 2.0**smallest)
        what = (f"{text} is the smallest loss scale that cures; {2**_FREE} times as much is room "
                "for smaller gradients")
        _try({scaled(smallest + _FREE): what}, runs, remedies)
        remedies.sort(key=lambda remedy: remedy.what != what)


def _first_place(causes: Sequence[Cause]) -> tuple[str, ...]:
    """By which the first of causes is told from that of another run."""
    if not causes:
        return ()
    row = causes[0].row
    return (causes[0].kind, causes[0].layer, *(str(row.get(key, "")) for key in (
        "direction", "operation", "line")))


#: A part of a remedy: the name of a change with its value, or a layer's pattern with its policy.
_Piece = tuple[str, Any]


def _together(remedies: Sequence[TriedRemedy], runs: _Experiments) -> dict[Way, str]:
    """The fewest changes and layers of the remedies that cure together, where none does alone."""
    pieces = {piece: None for remedy in remedies for piece in _pieces(remedy.way, runs.way)}
    if len(pieces) < 2 or any(remedy.cures for remedy in remedies):
        return {}

    cures = partial(_do_cure, runs)
    if not (runs.has_time() and cures(list(pieces))):
        return {}
    parts, _ = smallest(list(pieces), cures, runs.has_time)
    return {_joined(runs.way, parts): "Together, and none of them can be left out"}


def _without_needless(remedies: Sequence[TriedRemedy], runs: _Experiments) -> dict[Way, str]:
    """The first remedy that cures, without changes and layers that it does not need."""
    cure = next((remedy for remedy in remedies if remedy.cures), None)
    pieces = list(_pieces(cure.way, runs.way)) if cure is not None else []
    if cure is None or len(pieces) < 2 or _joined(runs.way, pieces) != cure.way:
        return {}
    parts, _ = smallest(pieces, partial(_do_cure, runs), runs.has_time)
    needless = len(parts) < len(pieces)
    return {_joined(runs.way, parts): f"{cure.what}. Only this much is needed"} if needless else {}


def _do_cure(runs: _Experiments, parts: Sequence[_Piece]) -> bool:
    """Whether these changes and layers cure together."""
    way = _joined(runs.way, parts)
    with suppress(TimeOverError):
        return runs.can_run(way) and not runs.is_ill(runs.outcome(way))
    return False


def _pieces(way: Way, base: Way) -> Iterator[_Piece]:
    """What a way changes, one by one; none of one with another policy for all layers."""
    if way.policy.default != base.policy.default:
        return
    if way.sr and not base.sr:
        yield "sr", True
    for name, value in vars(way.changes).items():
        if name != "halves_by_policy" and value != getattr(base.changes, name):
            yield name, value
    ours, theirs = (getattr(one.policy, "layers", ()) for one in (way, base))
    yield from (layer for layer in reversed(ours) if layer not in theirs)


def _joined(base: Way, pieces: Sequence[_Piece]) -> Way:
    """The way with these changes and layers."""
    way = base
    for name, value in pieces:
        if name == "sr":
            way = replace(way, sr=True)
        elif isinstance(value, Policy):
            way = way.with_policies.with_layer(name, value)
        else:
            way = replace(way, changes=replace(way.changes, **{name: value}))
    return way


def _with_wide_layers(result: Diagnosis, runs: _Experiments) -> dict[Way, str]:
    """The layers of the necessary sites in binary32, where they are few."""
    layers = list(dict.fromkeys(site.layer for site in result.necessary))
    if not layers or len(layers) > _LAYERS:
        return {}
    way = runs.way.with_policies
    for site in result.necessary:
        if site.role == UPDATE:
            way = replace(way, changes=replace(way.changes, wide_states=True))
    for layer in dict.fromkeys(s.layer for s in result.necessary if s.role != UPDATE):
        if layer:
            way = way.with_layer(layer)
    return {way: f"Compute {', '.join(layers)} in binary32"}


def _try(
    proposed: Mapping[Way, str], runs: _Experiments, remedies: list[TriedRemedy], *,
    first: bool = False,
) -> None:
    """Append each way that is new and that there is time for, as it comes out.

    first    one is run without time, too.
    """
    tried = {str(runs.way), *(str(remedy.way) for remedy in remedies)}
    for way, what in proposed.items():
        if str(way) not in tried and runs.can_run(way) and (
                runs.has_time() or (first and not remedies)):
            try:
                outcome = runs.outcome(way)
            except TimeOverError:
                return
            if not outcome.error:  # as of a layer that no policy can name
                remedies.append(_judged_remedy(runs, way, what, outcome))


def _judged_remedy(
    runs: _Experiments, way: Way, what: str, outcome: Outcome
) -> TriedRemedy:
    """A remedy that was run; of a number replaced also beside binary32 with the same one."""
    harm, cures = runs.harm(outcome), not runs.is_ill(outcome)
    losses, before = runs.losses_of(outcome), runs.harm(runs.base)
    if cures or way.changes.constants == runs.way.changes.constants or not runs.has_time():
        return TriedRemedy(what, way, harm, cures, losses, before=before)
    with suppress(TimeOverError):
        reference = runs.losses_with_constants(way)
        again = harm_of(losses, reference, runs.negligible) if reference else math.inf
        if again < harm:
            return TriedRemedy(f"{what} (beside binary32 with the same number)", way, again,
                               again <= HARM and not runs.shows_symptoms(outcome), losses,
                               reference)
    return TriedRemedy(what, way, harm, cures, losses, before=before)


# Patch ------------------------------------------------------------------------------------------


def patch_of(
    remedy: TriedRemedy, base: Way, name: str, text: str, words: tuple[str, str]
) -> str:
    """A diff of the program that does what the remedy does; else one of the command's policy.

    "" of what no policy says, as that tensors of the program are float32.

    name, text    of the program's file.
    words         of the command that runs it: before --policy and behind the policy.

    >>> eps = TriedRemedy("", Way.parse("fp16+eps=1e-4"), 0.0, True)
    >>> print(patch_of(eps, Way.parse("fp16"), "a.py", "opt = Adam(p, eps=1e-8)\\n", ("", "")))
    --- a.py
    +++ a.py
    @@ -1 +1 @@
    -opt = Adam(p, eps=1e-8)
    +opt = Adam(p, eps=0.0001)
    """
    changes, new = remedy.way.changes, text
    if remedy.way.policy == base.policy and remedy.way.sr == base.sr:
        if changes.eps is not None:
            new = re.sub(r"\b(eps|epsilon)(\s*=\s*)[-+.\deE]+",
                         rf"\g<1>\g<2>{number_text(changes.eps)}", new)
        for old, value in changes.constants:
            new = _number_replaced(new, old, number_text(value))
    if new == text:
        before, behind = words
        if str(base) == str(remedy.way):
            return ""
        return f"-{before} --policy {_shown(base)} {behind}\n" \
               f"+{before} --policy {_shown(remedy.way)} {behind}"
    lines = difflib.unified_diff(text.splitlines(), new.splitlines(), name, name, lineterm="")
    return "\n".join(lines)


def _number_replaced(text: str, old: float, new: str) -> str:
    """The program with every literal of a number replaced; comments and strings stay.

    A literal has no sign: of a negative number the size is replaced.
    """
    lines = text.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        if token.type == tokenize.NUMBER and _literal(token.string) == abs(old):
            (row, begin), (_, end) = token.start, token.end
            lines[row - 1] = lines[row - 1][:begin] + new.lstrip("-") + lines[row - 1][end:]
    return "".join(lines)


def _literal(text: str) -> float:
    """The value of a literal of Python; NaN of one that is no real number."""
    value = ast.literal_eval(text)
    return math.nan if isinstance(value, complex) else float(value)


def _shown(way: Way) -> Way:
    """The way without what a diagnosis adds to it."""
    return replace(way, changes=replace(way.changes, halves_by_policy=False))


def plain_diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    """Plain data: what the sentences of the page follow from."""
    return {
        "way": str(_shown(diagnosis.way)), "steps": diagnosis.steps, "answer": diagnosis.answer,
        "sentence": diagnosis.sentence, "measure": diagnosis.measure,
        "negligible": diagnosis.negligible,
        "harm": diagnosis.harm, "harmless": diagnosis.harmless,
        "losses": list(diagnosis.losses),
        "reference": list(diagnosis.reference),
        "necessary": [site._asdict() for site in diagnosis.necessary],
        "sufficient": [site._asdict() for site in diagnosis.sufficient],
        "window": diagnosis.window,
        "pairs": [{"first": p.first._asdict(), "second": p.second._asdict(), "harms": p.harms,
                   "interacts": p.interacts} for p in diagnosis.pairs],
        "doses": [{"exponent_bits": d.format.exponent_bits, "digits": d.format.precision,
                   "harm": d.harm, "cures": d.cures} for d in diagnosis.doses],
        "smallest": diagnosis.is_smallest, "chance": [s._asdict() for s in diagnosis.chance],
        "remedies": [{"what": r.what, "way": r.label or str(_shown(r.way)),
                      "harm": r.harm, "cures": r.cures,
                      "losses": list(r.losses), "reference": list(r.reference)}
                     for r in diagnosis.remedies],
        "sites": diagnosis.n_sites, "followed": diagnosis.followed, "beside": diagnosis.beside,
        "runs": diagnosis.runs, "seconds": diagnosis.seconds, "report": diagnosis.report,
    }
