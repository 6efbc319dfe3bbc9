"""Mutants of the rows of docs/sources.md: what a document says is built if a test notices one.

A line of `tests/golden/rows.json` names a row, a test that carries its mark, and one change of the
code that makes it work: a text that stands in the file once, and what it becomes.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

from tests.mutants import ROOT, Mutant

__all__ = ["RowMutant", "row_mutants"]

RECORD = ROOT / "tests" / "golden" / "rows.json"
#: Libraries that tests below a folder need.
_NEEDS = {
    "tests/ipu/frontends/tensorflow/": "tensorflow", "tests/experiments/listings/": "tensorflow",
    "tests/experiments/programs/test_ipuestimator_fp16": "tensorflow",
    "tests/experiments/commands/programs/test_tf": "tensorflow",
    "tests/ipu/frontends/torch/": "torch", "tests/ipu/frontends/poptorch/": "torch",
    "tests/experiments/programs/test_mnist_pipeline": "torch",
    "tests/experiments/execution/test_mnist": "torch",
    "tests/ipu/frontends/popdist/": "mpi4py", "tests/ipu/frontends/horovod/": "mpi4py",
    "tests/experiments/commands/programs/test_poprun": "mpi4py",
}


class RowMutant(NamedTuple):
    """A change of the code, and the test that fails with it.

    row     of docs/sources.md.
    test    its file and name, of all its parameters.
    before  a text of the file `path`, which becomes `after`.
    """

    row: str
    test: str
    path: str
    before: str
    after: str

    @property
    def mutant(self) -> Mutant:
        """The change.

        Raises    ValueError where the text does not stand in the file once.
        """
        text = (ROOT / self.path).read_text(encoding="utf-8")
        if text.count(self.before) != 1:
            raise ValueError(
                f"{self.row}: {self.path} has {text.count(self.before)} times {self.before!r}; "
                "name a line of the code that is there"
            )
        start = text.index(self.before)
        return Mutant(self.path, start, start + len(self.before), self.after, "row")

    @property
    def needs(self) -> str:
        """The library without which its test is skipped; "" for none."""
        return next((n for place, n in _NEEDS.items() if self.test.startswith(place)), "")

    @property
    def can_run(self) -> bool:
        """Whether this environment has what the test needs."""
        return not self.needs or find_spec(self.needs) is not None


@cache
def row_mutants() -> tuple[RowMutant, ...]:
    """All of them, in the order of the rows."""
    return tuple(RowMutant(**row) for row in json.loads(RECORD.read_text(encoding="utf-8")))
