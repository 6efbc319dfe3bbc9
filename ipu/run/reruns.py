"""A program run again and again: what its runs do, beside one in binary32.

Runs are bit-exact, so one run of a way with sites given back is an experiment without noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ipu.learn.policy import FP32
from ipu.run.births.kinds import INFINITY, SATURATED
from ipu.run.budget import Budget, TimeOverError
from ipu.run.causes.cause import Cause, is_beside_training, is_of_copies
from ipu.run.causes.finding import find_causes
from ipu.run.causes.rows import BESIDE_TRAINING
from ipu.run.causes.saturation import of_same_line
from ipu.run.endpoints import Outcome
from ipu.run.harm import HARM, harm_of, is_of_chance, most_left, unit_of
from ipu.run.motions import WAY_LOST, astray, motion_key, way_lost
from ipu.run.printed import PrintedNumber, Series, negligible, printed_series
from ipu.run.restoring import NOTHING_RESTORED, PrecisionSite, Restoring, role_of, sites_of
from ipu.run.ways import Way

__all__ = ["ROUNDS", "Replay", "Reruns", "Sites", "kinds_of_causes"]

#: What a run with this report can give back to binary32.
Sites = Callable[[Mapping[str, Any]], Sequence[PrecisionSite]]
#: Runs the program in a way, with sites given back, and with shadow values or without.
Replay = Callable[[Way, Restoring, bool], Outcome]
#: Times that one looks for what shows behind a cause once that is mended.
ROUNDS = 4
#: Kind, layer, direction and operation of a birth.
Place = tuple[str, str, str, str]
#: Kinds of causes for which a shadow is asked; where the losses show no harm, one more.
_BY_SHADOW = frozenset(("drift", "states", "gradients vanish"))
_BY_WAY = _BY_SHADOW | {"updates"}
#: Kinds of causes by which a number stands still, so that any other one moves it again.
_STANDING = frozenset(("drift", "sums", "updates"))
#: The kind of what shows in a number that the program prints.
_MISPRINT = "misprint"
#: Births of numbers beyond the range.
_BEYOND = (INFINITY, SATURATED)
#: Formats of weights with which a run in binary32 is one.
_WIDE = ("binary32", "binary64")
#: Share of births of a place that binary32 has too where they are no format's.
_SAME = 0.1
#: Harm beside which a birth may be unseen, the margin of a run that is as good as another; and the
#: share of an operation's results that may leave the range so.
_UNSEEN, _FEW = 0.01, 0.1
#: Share of binary32's progress that it makes at least with a number replaced.
_TRAINS = 0.5


class Reruns:
    """Runs of one program, each made once."""

    def __init__(
        self, replay: Replay, way: Way, budget: Budget, sites: Sites | None,
        check: Callable[[Way], object],
        outcomes: dict[tuple[Way, Restoring], Outcome] | None = None,
    ) -> None:
        self.way, self.check = way, check
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
        #: The harm of a run in which only the site of a birth is low.
        self._alone: dict[Place, float] = {}
        of_reference: set[str] = set()
        if self.is_narrow:
            self.losses = _losses_of_shadow(self.base.report)
        else:
            for row in self.reference.report.get("births", ()):
                place = _place(row)
                self._of_binary32[place] = self._of_binary32.get(place, 0) + row["count"]
            of_reference = kinds_of_causes(self.reference.report)
        self._kinds_of_reference = of_reference
        #: What a report is told of binary32's run; {} where that trains nothing.
        self._of_reference: dict[str, Any] = {}
        if not self.is_narrow and self.losses and "diverges" not in of_reference and (
                np.isfinite(self.losses).all()):
            self._of_reference = {"jumps": self.reference.report.get("jumps", {}),
                                  "losses": list(self.losses)}
        #: Births of a training that is well, which none of the run's numbers shows.
        self._unseen = self._find_unseen()
        self.causes = self._find_causes()
        self.symptoms = {cause.kind for cause in self.causes}
        #: By which sites are told apart: several symptoms need not have the same ones.
        self._first = {c.kind for c in self.causes[:1]} & self.symptoms
        #: Tensors that went astray, which a cure must bring back.
        self._astray: frozenset[tuple[Any, ...]] = frozenset()
        if any(_is_of_average(cause) for cause in self.causes):
            self._astray = frozenset(map(motion_key, astray(self.base.report)))
            self._must_mend("drift")
        #: What the program prints wrong, beside a training that is well; a cure must mend it.
        self._misprinted = self._find_misprint()
        if self._misprinted is not None and not is_of_copies(self.causes[0]):
            self._must_mend(_MISPRINT)
        by_shadow = _BY_SHADOW if self.harm(self.base) > HARM else _BY_WAY
        self._has_shadow = bool(by_shadow & self.symptoms)

    def _must_mend(self, kind: str) -> None:
        """A symptom of this kind is there beside those of the causes."""
        self.symptoms.add(kind)
        self._first.add(kind)

    def _find_unseen(self) -> set[Place]:
        """Births in passes forward that left their range, where losses and parameters are well.

        As of a square that a selection leaves out again: few of the results. What is wrong beside
        the training, as a metric, is born where no gradients are recorded, or shows in what the
        program prints.
        """
        report = self.base.report
        if not (self.base.losses and report) or self.harm(self.base) > _UNSEEN or not (
                way_lost(report) <= WAY_LOST):
            return set()
        rows = [row for row in report.get("births", ()) if row["kind"] in _BEYOND]
        beside = any(row["direction"] in BESIDE_TRAINING and not row["harmless"] for row in rows)
        if not beside and max(self._printed_harms(self.base).values(), default=0.0) > HARM:
            return set()
        return {_place(row) for row in rows
                if row["direction"] == "forward" and row["count"] <= _FEW * row["results"]}

    def _printed_harms(self, outcome: Outcome) -> dict[PrintedNumber, float]:
        """How far the numbers that a run prints are from those of binary32's."""
        reference, ours = (printed_series(o.printed) for o in (self.reference, outcome))
        return {key: harm_of(ours.get(key, ()), row, negligible(reference, key))
                for key, row in reference.items()}

    def _find_misprint(self) -> PrintedNumber | None:
        """The printed number that is furthest from binary32's, which prints it again.

        None where nothing is wrong, or where losses or training show what is.
        """
        is_beside = any(map(is_beside_training, self.causes[:1]))
        if not (is_beside and self.losses) or self.printed or self.harm(self.base) > HARM:
            return None
        reference, ours = (printed_series(o.printed) for o in (self.reference, self.base))
        harms = {key: harm for key, harm in self._printed_harms(self.base).items()
                 if harm > HARM and ours.get(key)}
        if harms:
            with suppress(TimeOverError):
                harms = self._printed_again(harms, reference)
        return max(harms, key=lambda key: harms[key], default=None)

    def _printed_again(
        self, harms: Mapping[PrintedNumber, float], reference: Series
    ) -> dict[PrintedNumber, float]:
        """Those of numbers that another run in binary32 prints as the first one does."""
        again = self._replay(_binary32(self.way), NOTHING_RESTORED, False)
        same = printed_series(again.printed)
        return {key: harm for key, harm in harms.items() if same.get(key) == reference[key]}

    @property
    def shows_results(self) -> bool:
        """Whether losses or printed numbers are wrong: rounded to a dose, no birth is told."""
        return self.harm(self.base) > HARM or self._misprinted is not None

    @property
    def misprint(self) -> str:
        """What the program prints that is not binary32's, beside a training that is well."""
        worst = self._misprinted
        if worst is None:
            return ""
        reference, ours = (printed_series(o.printed) for o in (self.reference, self.base))
        return (f"the program prints {ours[worst][-1]:g} where binary32's run prints "
                f"{reference[worst][-1]:g}, in {worst.line!r}")

    def as_written(self) -> Reruns | None:
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
            runs = Reruns(
                self._replay, way, self.budget, lambda report: (), self.check, self._outcomes)
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
        reference, harms = printed_series(self.reference.printed), self._printed_harms(self.base)
        if max(harms.values(), default=0.0) > HARM:
            harms = self._printed_again(harms, reference)
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
        """Whether a run has a harm, or half of that of the run as it is, or one of its symptoms."""
        is_harmed = self.harm(outcome) > most_left(self.harm(self.base))
        return is_harmed or self.shows_symptoms(outcome)

    @property
    def is_undecided(self) -> bool:
        """Whether the run is ill by its losses alone, and these may part by chance in its steps.

        A symptom that is one without any harm of the losses decides.
        """
        if self.printed is not None or self.base.error or not is_of_chance(
                self.harm(self.base), self.base.losses, self.losses):
            return False
        causes = find_causes({**self.report, "harm": 0.0})
        return {cause.kind for cause in causes} <= self._kinds_of_reference

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
        kinds = kinds_of_causes(self.beside_binary32(outcome))
        if self._misprinted is not None and not (
                self._printed_harms(outcome).get(self._misprinted, 0.0) <= HARM):
            kinds.add(_MISPRINT)
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
            self.check(way)
        except ValueError:
            return False
        return True

    @property
    def runs(self) -> int:
        return len(self._outcomes)


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


def kinds_of_causes(report: Mapping[str, Any]) -> set[str]:
    """Kinds of the causes that a run shows; of none without a report."""
    return {cause.kind for cause in find_causes(report)} if "losses" in report else set()


def _place(row: Mapping[str, Any]) -> Place:
    """By which a birth is known in another run: binary32's own are no format's."""
    return row["kind"], row["layer"], row["direction"], row["operation"]


def _binary32(way: Way) -> Way:
    """All in binary32, also what the program itself makes narrower, where a front end can."""
    return replace(way, policy=FP32, sr=False).with_policies


def _with_all_layers(report: Mapping[str, Any], reference: Mapping[str, Any]) -> dict[str, Any]:
    """A report with binary32's layers and directions too: a run counts until its first NaN."""
    layers, others = report["layers"], reference.get("layers", {})
    return {**report, "layers": {
        name: {**others.get(name, {}), **layers.get(name, {})} for name in {**layers, **others}}}
