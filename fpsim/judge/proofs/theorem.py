"""A theorem about the kernels, its proof by a solver, and what becomes of a counterexample.

The negation of the claim is given to the solver: where it has no model, the claim holds for every
input. A model is a counterexample; it is run again through the compiled kernel and the oracle.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import bitwuzla as bz

from fpsim.judge.proofs.terms import Theory, Truth, both

__all__ = [
    "CONTRACT", "OPEN", "PROVED", "REFUTED", "Finding", "Point", "ProofVerdict", "SolverClaim",
    "Theorem", "prove", "values_of",
]

PROVED, CONTRACT = "PROVED", "PROVED UNDER CONTRACT"
OPEN, REFUTED = "NOT DECIDED", "REFUTED"

#: A proof that needs more memory ends undecided.
_MOST_BYTES = 4 << 30

#: Values of a theorem's variables by name.
Point = Mapping[str, int]


class Finding(NamedTuple):
    """What the compiled code and the oracle say at a point."""

    kernel: str
    oracle: str

    @property
    def differs(self) -> bool:
        return self.kernel != self.oracle

    def __str__(self) -> str:
        says = "they differ" if self.differs else "they agree"
        return f"kernel {self.kernel}, oracle {self.oracle}: {says}"


@dataclass
class SolverClaim:
    """What the solver is asked: `goal` of every value of the variables that fits the premises.

    Where operations are granted to be any function, most counterexamples in usual places are some
    of the real functions, too.
    """

    theory: Theory
    goal: Truth
    premises: list[Truth] = field(default_factory=list)
    #: Where a counterexample is looked for first: at points that are not out of the way.
    usual: Truth | None = None
    #: Asked one by one before the whole: what the solver learns from small cases shortens it.
    cases: Sequence[Truth] = ()


@dataclass(frozen=True)
class Theorem:
    """A sentence about the kernels and how it is decided.

    name       unique, as the command line takes it
    kind       the group that it stands in
    statement  one sentence
    claim      builds the terms; called anew for each proof
    check      the compiled code and the oracle at a point; None where the claim has no kernel
    contracts  the names of what is taken for granted, each a theorem or an axiom
    quick      whether it belongs to the subset of a minute
    about      what all theorems of the kind say
    """

    name: str
    kind: str
    statement: str
    claim: Callable[[], SolverClaim]
    check: Callable[[Point], Finding] | None = None
    contracts: tuple[str, ...] = ()
    quick: bool = False
    about: str = ""

    def found_at(self, point: Point) -> Finding:
        """What the compiled code and the oracle say at a point."""
        if self.check is None:
            raise ValueError(f"theorem={self.name!r} has no kernel of its own to run at a point")
        return self.check(point)

    def line(self, point: Point) -> str:
        """The command that looks at a point again."""
        at = " ".join(f"--at {name}={value:#x}" for name, value in point.items())
        return f"fpsim verify proof '{self.name}' {at}"


@dataclass
class ProofVerdict:
    """What came of a proof; seconds of processor time."""

    theorem: Theorem
    status: str
    seconds: float
    point: Point = field(default_factory=dict)
    finding: Finding | None = None

    @property
    def is_proved(self) -> bool:
        return self.status in (PROVED, CONTRACT)

    def __str__(self) -> str:
        text = f"{self.status:<21} {self.seconds:6.1f} s  {self.theorem.name}"
        if self.status == CONTRACT:
            text += f"  (contracts: {', '.join(self.theorem.contracts)})"
        if self.status != REFUTED:
            return text
        text += f"\n  {self.theorem.line(self.point)}"
        if self.finding is None:
            return text
        says = "confirmed" if self.finding.differs else "NOT CONFIRMED by the compiled code"
        return f"{text}\n  {says}: kernel {self.finding.kernel}, oracle {self.finding.oracle}"


def negated(claim: SolverClaim, options: bz.Options) -> bz.Bitwuzla:
    """A solver that looks for a counterexample."""
    solver = bz.Bitwuzla(claim.theory.manager, options)
    for truth in (*claim.theory.definitions, *claim.premises):
        solver.assert_formula(truth.term)
    goal = both([claim.goal, *(duty for _, duty in claim.theory.duties)])
    solver.assert_formula((~goal).term)
    return solver


def _check_premises(claim: SolverClaim) -> None:
    """Contracts and premises have a model: what follows from none would prove nothing."""
    solver = bz.Bitwuzla(claim.theory.manager, _options())
    for truth in (*claim.theory.definitions, *claim.premises):
        solver.assert_formula(truth.term)
    answer = solver.check_sat()
    assert answer == bz.Result.SAT, "the contracts contradict each other"


def _options() -> bz.Options:
    options = bz.Options()
    options.set(bz.Option.PRODUCE_MODELS, True)
    return options


def _resident_bytes() -> int:
    """Memory that the process holds, as Linux tells it; 0 under other systems: no limit there."""
    try:
        text = Path("/proc/self/statm").read_text(encoding="ascii")
    except FileNotFoundError:
        return 0
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _answer(solver: bz.Bitwuzla, claim: SolverClaim) -> bz.Result:
    """Of the whole claim, whatever the cases are; or of the first case that is not proved."""
    for case in claim.cases:
        answer = solver.check_sat(case.term)
        if answer != bz.Result.UNSAT:
            return answer
    return solver.check_sat()


def prove(theorem: Theorem, limit: float = 60.0) -> ProofVerdict:
    """Decide a theorem within so many seconds of processor time, and 4 GiB of memory."""
    begin = time.process_time()
    claim = theorem.claim()
    solver = negated(claim, _options())
    calls = itertools.count()
    # The solver asks a hundred thousand times a second: looking each time, as its own limit of
    # memory does, would take as long as the proof.
    solver.configure_terminator(
        lambda: next(calls) % 1024 == 0
        and (time.process_time() - begin > limit or _resident_bytes() > _MOST_BYTES)
    )
    answer = _answer(solver, claim)
    seconds = time.process_time() - begin
    if answer == bz.Result.UNSAT:
        if theorem.contracts:
            _check_premises(claim)
        return ProofVerdict(theorem, CONTRACT if theorem.contracts else PROVED, seconds)
    if answer != bz.Result.SAT:
        return ProofVerdict(theorem, OPEN, seconds)
    if claim.usual is not None and solver.check_sat(claim.usual.term) != bz.Result.SAT:
        solver.check_sat()
    point = {
        name: int(solver.get_value(word.term).value(), 2)
        for name, word in claim.theory.variables.items()
    }
    return ProofVerdict(theorem, REFUTED, seconds, point, theorem.check and theorem.found_at(point))


def values_of(theorems: Sequence[Theorem], at: Sequence[str]) -> tuple[Theorem, Point]:
    """The one theorem, and a point read from NAME=VALUE of each of its variables.

    Raises    ValueError for several theorems, a name that is not the theorem's, or no number.
    """
    if len(theorems) != 1:
        raise ValueError(f"--at needs one theorem, got {len(theorems)}; give its whole name")
    names = theorems[0].claim().theory.variables
    point: dict[str, int] = {}
    for text in at:
        name, _, value = text.partition("=")
        try:
            number = int(value, 0)
        except ValueError:
            number = -1
        if name not in names or not 0 <= number < 1 << names[name].width:
            offered = ", ".join(f"{n} ({word.width} bits)" for n, word in names.items())
            raise ValueError(f"--at={text!r} is no value of the theorem; use {offered}")
        point[name] = number
    if missing := [name for name in names if name not in point]:
        raise ValueError(f"--at lacks {', '.join(missing)}; give a value of every variable")
    return theorems[0], point
