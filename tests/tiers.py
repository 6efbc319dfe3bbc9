"""How much the tests do: quick (minutes, the default), full (an hour or two) or deep (many hours).

The environment variable FPSIM_TIER chooses. A test scales its own work with `pick`; one that has
no short form is marked `@pytest.mark.tier("full")` and is not collected below that tier. What takes
minutes is marked `@pytest.mark.minutes` and starts first.

A kernel takes about a second to compile, so the quick tier has one of each kind: every operation to
nearest and stochastically, every mode with one operation, every engine and kind of unit with one
shape, every policy once. Loops of matrix units compile longest, three seconds each, and one for
each length of a pass: units that store half partials have complete passes in the quick tier, and
one that is short.

The full tier has these cases with all operands of small formats and many of others, every engine
and unit, and of each further choice every value once. Products of choices (format, mode, policy,
order) belong to the deep tier: a kernel each, and 50 microseconds for a result of the oracle. So do
all recorded mutants and rows, whole trainings, full runs of minutes, installations of every extra,
and all digests in every state of the processor.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

TIERS = ("quick", "full", "deep")
TIER = os.environ.get("FPSIM_TIER", "quick")
if TIER not in TIERS:
    raise ValueError(f"FPSIM_TIER={TIER!r} is not a tier; use one of {', '.join(TIERS)}")


def pick(quick: T, full: T, deep: T) -> T:
    """The value for the tier that runs: a count, a range, a list of formats."""
    return {"quick": quick, "full": full, "deep": deep}[TIER]


def reaches(tier: str) -> bool:
    """Whether the running tier includes what is marked with this one."""
    return TIERS.index(TIER) >= TIERS.index(tier)
