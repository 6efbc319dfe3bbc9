"""Named mutants of kernels and plans, and the theorems that refute them.

Each changes a text that stands once in its file. It is applied to a copy of the tree, where the
proof must end in a counterexample that the mutant's own compiled kernel confirms.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

from tests.mutants import ROOT, Mutant
from tests.mutate import Tree

__all__ = ["MUTANTS", "Named", "outcome"]

ROUNDING, ELEMENTWISE = "fpsim/kernels/rounding/", "fpsim/kernels/elementwise/"


class Named(NamedTuple):
    """What is changed, and the theorem that no longer holds."""

    name: str
    path: str
    before: str
    after: str
    theorem: str

    def mutant(self) -> Mutant:
        text = (ROOT / self.path).read_text(encoding="utf-8")
        assert text.count(self.before) == 1, f"{self.name}: {self.before!r} is not one place"
        start = text.index(self.before)
        return Mutant(self.path, start, start + len(self.before), self.after, "named")


MUTANTS = [
    Named("tie to the odd neighbour", ROUNDING + "grids.py",
          "half + ((a >> rule.drop) & 1)", "half + (~(a >> rule.drop) & 1)",
          "convert binary16 RNE"),
    Named("a binade of subnormals on the grid of normal numbers", ROUNDING + "grids.py",
          "select(a < rule.emin << digits", "select(a < rule.emin - 1 << digits",
          "convert e4m3 RNE"),
    Named("a quantum too far down", ROUNDING + "grids.py",
          "floor = select(above, nearest - quantum, nearest)", "floor = nearest - quantum",
          "convert e5m2 RTP"),
    Named("overflow begins late", ELEMENTWISE + "step.py",
          "return (t & ~sign) >= _by_sign(mode, t, sign, rule.over_pos, rule.over_neg)",
          "return (t & ~sign) > _by_sign(mode, t, sign, rule.over_pos, rule.over_neg)",
          "convert e4m3fn RNA"),
    Named("tininess looked for before rounding", "fpsim/elementwise/constants.py",
          "Up.NEVER: 0, Up.ABOVE_HALF: half - 1, Up.FROM_HALF: half, Up.ALWAYS: 2 * half - 1,",
          "Up.NEVER: 0, Up.ABOVE_HALF: 0, Up.FROM_HALF: 0, Up.ALWAYS: 0,",
          "convert f152 RAZ"),
    Named("one random digit fewer", ROUNDING + "round.py",
          "r = umin(rule.random_bits + s, rule.random_most)",
          "r = umin(rule.random_bits + s, rule.random_most) - 1", "convert bfloat16 SR(8)"),
    Named("a signalling NaN is quiet", ELEMENTWISE + "step.py",
          "((raw & quiet_like(raw)) == 0)", "((raw & quiet_like(raw)) != 0)",
          "convert binary16 RTZ"),
]


def outcome(tree: Tree, named: Named) -> str:
    """What the command line says of the theorem in a tree with the mutant."""
    mutant = named.mutant()
    tree.apply(mutant)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "ipu.experiments.cli", "verify", "proof", named.theorem],
            cwd=tree.root, env=tree.environment(), capture_output=True, text=True, check=False,
        )
    finally:
        tree.restore(mutant)
    return f"status {done.returncode}\n{done.stdout}{done.stderr}"
