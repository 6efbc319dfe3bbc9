"""Digests of a fixed set of results, as a program: python -m tests.digests [--write] [NAME ...].

A case has a name, tags, and a function that yields what is hashed: Arrays (as codes), arrays of
integers, numbers, texts. The hash depends on values and shapes only, neither on the type in which
codes are held nor on the byte order. Without names all cases run; the names that differ from
tests/golden/digests.json are printed, and with `--write` the file takes the new digests.

Tags    stochastic   results depend on the number n of an operation.
        counts       the rule which operations take a number shows in it: empty operands, sums of
                     one element, K = 0, operations that round nothing, in a stochastic context.
"""

from __future__ import annotations

from tests.digests.catalogue import CASES
from tests.digests.registry import GOLDEN, Case, digest, golden, run

__all__ = ["CASES", "GOLDEN", "Case", "digest", "golden", "run"]
