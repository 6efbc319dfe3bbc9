"""Diagnosis: why a program is harmed by its formats, by running it again and again.

Runs are bit-exact, so one run of a set of sites (`ipu.run.restoring`) is an experiment without
noise. All runs begin at the same seeds and stop after the same few steps.

    harm         the mean distance of the losses from binary32's, step by step, beside what
                 binary32's losses go through (their fall, or their deviation where that is more).
                 None where all are within a unit of the format that holds them, and the parameters
                 go where binary64's do: such losses cannot tell more.
    ill          the harm is above 5 %, below 20 % by more than chance makes in so few steps
                 (`ipu.run.harm.noise_of`), or the run still shows a symptom of the first one's
                 (`ipu.run.causes`): what never reaches the loss counts too. A tensor that went
                 astray beside its shadow must be brought back.
    necessary    sites that must be given back together for the harm to go: none can be left out.
    sufficient   sites that bring it on by themselves, everything else in binary32.
    responses    in which steps the necessary sites must be given back, which of them interact, and
                 how many bits must be (`ipu.run.responses`).
    control      results of a necessary site moved by a unit in the last place, in place of being
                 given back. Where that cures the program too, the site is no cause.
    remedy       what the report advises, and the layers of the necessary sites in binary32: each
                 was run, and is told with the harm that is left. It lessens where that is half at
                 most, also of the harm of a run whose results are moved by a unit in the last place
                 (`ipu.run.lessening`). Those that cure are followed further, while there is time
                 (`ipu.run.confirming`).

Evidence    ASSUMED: the bound of harm.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fpsim.records.formats import Format
from ipu.run.harm import HARM, most_left
from ipu.run.responses import Dose, SitePair, harm_text
from ipu.run.restoring import PrecisionSite
from ipu.run.ways import Way

__all__ = ["LISTED", "Diagnosis", "TriedRemedy", "plain_diagnosis", "policy_shown"]

#: Sites that are listed, at most, where time ran out before all were tried.
LISTED = 6
#: Ways without help that are listed, at most, and characters of one; others are counted.
_OTHERS, _LONG = 5, 60
#: Sites of a pair; losses that have a mean.
_OF_PAIR = _OF_MEAN = 2


@dataclass(frozen=True)
class TriedRemedy:
    """A way in which the program was run.

    what      in words.
    harm      that is left; `cures`: nothing of the harm and of its symptoms is.
    losses    of its run; `reference`: of one in binary32 with the same numbers of the program
              replaced, where it was compared with that.
    before    the harm of the run as it is: where that is none, no remedy moves it.
    label     what is told in place of the way.
    lessens   most of the harm goes, and not by chance.
    steps     that it was followed, where those are more than the diagnosis'; `reference` and
              `before` are then of as many, and of the first ones alone it may cure.
    """

    what: str
    way: Way
    harm: float
    cures: bool
    losses: Sequence[float] = ()
    reference: Sequence[float] = ()
    before: float = math.inf
    label: str = ""
    lessens: bool = False
    steps: int = 0

    @property
    def helps(self) -> bool:
        """Whether it is told as a remedy."""
        return self.cures or self.lessens

    @property
    def verdict(self) -> str:
        """What became of the illness, in words."""
        if self.cures and self.before <= HARM:
            return "the symptom goes; the losses were close to binary32's without it too"
        if self.cures:
            return f"cures over {self.steps} steps" if self.steps else "cures"
        if self.lessens:
            return "lessens"
        if self.harm <= most_left(self.before):
            return "the losses are close to binary32's, and a symptom of the report stays"
        return f"does not cure over {self.steps} steps" if self.steps else "does not cure"

    @property
    def name(self) -> str:
        """The way, or what is told in its place."""
        return self.label or str(self.way)

    def __str__(self) -> str:
        is_less = self.lessens or (self.cures and self.steps)
        before = f"{harm_text(self.before)} → " if is_less else ""
        return (f"{self.name}: {self.verdict}, harm {before}{harm_text(self.harm)}. "
                f"{self.what}")


@dataclass
class Diagnosis:
    """What hurts a program, tested.

    answer      "healthy", "ill", "binary32 does not train here", or "cannot tell" where the program
                computes nothing on the machine, began no backward pass and prints no number,
                stops with an error in binary32 too, or where its harm may be chance.
    sentence    the first cause, in words.
    harm        of the run as it is; `noise`: how much of it may be chance, where that leaves the
                answer open (`ipu.run.harm.noise_of`), else 0.
    necessary, sufficient    sites; `is_smallest`: there was time to try each.
    window      steps in which the necessary sites must be given back, and the one behind the last;
                None: all, or it was not looked for.
    pairs       of necessary sites; `doses`: of bits given back to them.
    chance      necessary sites whose control cured the program too.
    remedies    those that cure first, then those that lessen the harm.
    beside      what the losses are compared with: binary32; of a program whose own tensors are
                narrow in every way, the shadow in binary64.
    runs        of the program, and the seconds that they took.
    losses_of_step    backward passes of a step, of whose losses the mean is compared.
    is_evaluated    the first cause is where no gradients are recorded: a window of steps counts
                them behind their updates then.
    report      that the sentence is about: of the run as it is, or of binary32's that fails.
    followed    of the program, where it is less than was asked for: steps, operations, seconds of
                the first run, and why there are no more (`ipu.run.replaying`).
    asks_status    a gradient scaler of the program reads the status register.
    harmless    what the run loses without harm, in words.
    rewriting   what the program can write instead (`ipu.run.rewritings`), which was not run; "".
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
    rewriting: str = ""
    measure: str = "losses"
    negligible: float = 0.0
    noise: float = 0.0
    losses_of_step: int = 1
    is_evaluated: bool = False
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
        """The page while more is tried."""
        follows = "sites are searched for" if self.remedies else "remedies are tried"
        if self.answer != "ill":
            follows = "more steps are followed"
        return "\n".join((
            *self._first_lines(), *self._remedies_told(),
            f"after {self.runs} runs, {self.seconds:.0f} s; {follows}",
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
        if self.answer != "cannot tell" or self.noise:
            loss = "loss " if self.measure == "losses" else ""
            beside = f" of what {self.beside}'s {self.measure} go through"
            yield (
                f"  harm {harm_text(self.harm)}{beside if math.isfinite(self.harm) else ''}; "
                f"{loss}{_losses(self.losses)}, {self.beside} {_losses(self.reference)}"
            )
        if self.of_losses:
            yield f"  {self.of_losses}"
        if self.misprint:
            yield f"  {self.misprint}"
        yield from (f"  without harm: {text}" for text in self.harmless)
        if self.left_out:
            yield f"  {self.left_out}"

    def _tested(self) -> Iterator[str]:
        partly = "" if self.is_smallest else " (time ran out: not all of them may be needed)"
        if self.narrowed(self.necessary):
            yield f"necessary: the {self.ill} goes if these are given back to binary32{partly}:"
            yield from (f"  {site}" for site in self.necessary)
            if len(self.necessary) > 1 and self.is_smallest:
                yield ("  they interact: with any one of them left low the harm, or its symptom, "
                       "stays")
            yield from self._responses()
        else:
            yield self.without_sites
        if self.narrowed(self.sufficient):
            yield f"sufficient: it comes if only these are low{partly}:"
            yield from (f"  {site}" for site in self.sufficient)
        for site in self.chance:
            yield f"chance: a unit in the last place in {site} cures it too, so that is no cause"
        yield from self._remedies_told()
        if not self.remedies:
            yield "no remedy is known that could be tried"
        if self.rewriting:
            yield f"in the program itself, not tried: {self.rewriting}"

    def _remedies_told(self) -> Iterator[str]:
        yield from (f"remedy {remedy}" for remedy in self.mending)
        if self.unconfirmed:
            yield self.unconfirmed
        if self.without_help:
            yield self.without_help

    @property
    def mending(self) -> list[TriedRemedy]:
        """The remedies that cure, and those that lessen the harm."""
        return [remedy for remedy in self.remedies if remedy.helps]

    @property
    def window_told(self) -> str:
        """The steps of the window, by the count of the sentence; "" without one.

        >>> Diagnosis(Way.parse("fp16"), 9, window=(1, 7)).window_told
        'in steps 1 to 6'
        >>> Diagnosis(Way.parse("fp16"), 9, window=(1, 2), is_evaluated=True).window_told
        'after step 0'
        """
        if self.window is None:
            return ""
        is_behind = self.is_evaluated and self.window[0] > 0
        first, last = self.window[0] - is_behind, self.window[1] - 1 - is_behind
        which = f"step {first}" if first == last else f"steps {first} to {last}"
        return f"{'after' if is_behind else 'in'} {which}"

    @property
    def of_losses(self) -> str:
        """That losses are means, which a program need not print; "" where they are not."""
        if self.losses_of_step < _OF_MEAN or self.measure != "losses":
            return ""
        return (f"each loss is the mean over the {self.losses_of_step} backward passes of a step; "
                "a program may print another one, as PopTorch returns the last micro-batch's")

    @property
    def unconfirmed(self) -> str:
        """Which remedies cure by the steps of the diagnosis alone; "" where none is."""
        cures = [remedy for remedy in self.remedies if remedy.cures]
        is_of_losses = self.measure == "losses" and self.harm > HARM
        if not is_of_losses or all(remedy.steps for remedy in cures):
            return ""
        without = " without a number of its own" if any(r.steps for r in cures) else ""
        return f"a remedy{without} cures these {self.steps} steps; it was followed no further"

    @property
    def without_help(self) -> str:
        """The other ways that were tried, in a line; "" where there are none."""
        others = [remedy for remedy in self.remedies if not remedy.helps]
        ways = [
            f"{remedy.name} (harm {harm_text(remedy.harm)}"
            f"{', a symptom stays' if remedy.harm <= most_left(remedy.before) else ''}"
            f"{f' over {remedy.steps} steps' if remedy.steps else ''})"
            for remedy in others if len(remedy.name) <= _LONG
        ][:_OTHERS]
        if len(ways) < len(others):
            ways.append(f"{len(others) - len(ways)} more")
        return f"tried, does not help: {', '.join(ways)}" if ways else ""

    @property
    def beside_pairs(self) -> str:
        """What is said of the necessary sites that are not of a pair; "" where there are none."""
        return " (the others are)" if len(self.necessary) > _OF_PAIR else ""

    @property
    def doses_told(self) -> str:
        """Whether range or digits are the matter; "" where neither alone is."""
        return _kind_of_dose(self.doses, self.way.policy.default.activations)

    @property
    def ill(self) -> str:
        """What goes with a cure: the harm, or a symptom where the losses are binary32's."""
        return "harm" if self.harm > HARM else "symptom"

    def narrowed(self, sites: Sequence[PrecisionSite]) -> bool:
        """Whether there are sites and they are told: all were tried, or few are left."""
        return bool(sites) and (self.is_smallest or len(sites) <= LISTED)

    @property
    def without_sites(self) -> str:
        """Why no sites are told as necessary."""
        if self.is_of_halves:
            return ("necessary: tensors that the program makes float16; the harm goes where they "
                    "have the policy's formats")
        if self.beside != "binary32":
            return ("the program's own narrow tensors are no sites; a layer that a way names "
                    "computes them in binary32")
        if not self.n_sites:
            return "the program's own narrow tensors are no sites"
        if not self.is_smallest and len(self.necessary) in (0, self.n_sites):
            return f"no time was left to search {self.n_sites} sites; give more --seconds"
        if not self.is_smallest:
            return (f"time ran out: the {self.ill} goes with {len(self.necessary)} of "
                    f"{self.n_sites} sites given back to binary32; more --seconds leave fewer")
        within = f"with all {self.n_sites} sites in binary32 the {self.ill} stays: "
        if self.cure is not None:
            return f"{within}it is in a tensor that belongs to no layer"
        return f"{within}no format is its cause"

    def _responses(self) -> Iterator[str]:
        if self.window_told:
            yield f"  {self.window_told} alone; in the others they may stay low"
        for pair in self.pairs:
            if pair.interacts:
                neither, one, other, both = map(harm_text, pair.harms)
                yield (f"pair {pair.first} and {pair.second}: harm {neither} with neither given "
                       f"back{self.beside_pairs}, {one} and {other} with one, {both} with both")
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


def plain_diagnosis(diagnosis: Diagnosis) -> dict[str, Any]:
    """Plain data: what the sentences of the page follow from."""
    return {
        "way": str(policy_shown(diagnosis.way)), "steps": diagnosis.steps,
        "answer": diagnosis.answer,
        "sentence": diagnosis.sentence, "measure": diagnosis.measure,
        "negligible": diagnosis.negligible,
        "harm": diagnosis.harm, "noise": diagnosis.noise,
        "harmless": diagnosis.harmless, "rewriting": diagnosis.rewriting,
        "losses": list(diagnosis.losses),
        "reference": list(diagnosis.reference),
        "necessary": [site._asdict() for site in diagnosis.necessary],
        "sufficient": [site._asdict() for site in diagnosis.sufficient],
        "window": diagnosis.window, "evaluated": diagnosis.is_evaluated,
        "pairs": [{"first": p.first._asdict(), "second": p.second._asdict(), "harms": p.harms,
                   "interacts": p.interacts} for p in diagnosis.pairs],
        "doses": [{"exponent_bits": d.format.exponent_bits, "digits": d.format.precision,
                   "harm": d.harm, "cures": d.cures} for d in diagnosis.doses],
        "smallest": diagnosis.is_smallest, "chance": [s._asdict() for s in diagnosis.chance],
        "remedies": [{"what": r.what, "way": r.label or str(policy_shown(r.way)),
                      "harm": r.harm, "cures": r.cures, "lessens": r.lessens,
                      "before": r.before, "steps": r.steps,
                      "losses": list(r.losses), "reference": list(r.reference)}
                     for r in diagnosis.remedies],
        "sites": diagnosis.n_sites, "followed": diagnosis.followed, "beside": diagnosis.beside,
        "runs": diagnosis.runs, "seconds": diagnosis.seconds, "report": diagnosis.report,
    }


def policy_shown(way: Way) -> Way:
    """The way without what a diagnosis adds to it."""
    return replace(way, changes=replace(way.changes, halves_by_policy=False))
