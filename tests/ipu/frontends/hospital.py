"""Programs of the hospital under every front end: an illness, its name in a sentence, its cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

__all__ = ["BAR", "MIXED", "Illness", "sample"]

#: Parameters in binary32, results in binary16: what most users run.
MIXED = "p=f32,c=f16,part=f32"
#: Of the first sentences, those that must name the cause.
BAR = 0.95


@dataclass(frozen=True)
class Illness:
    """What makes a program ill; texts that are "" are a healthy program's.

    names       what the first sentence must hold, as regular expressions.
    sizes       of the cause: values of {a}; the last is held back.
    remedy      a way in which the same program is well; "": the text of `well` replaces {a}.
    """

    names: tuple[str, ...]
    policy: str = MIXED
    stage: str = ""
    optimiser: str = ""
    before: str = ""
    weight: str = ""
    update: str = ""
    after: str = ""
    steps: int = 6
    sizes: tuple[str, ...] = ("",)
    remedy: str = ""
    well: str = ""

    def is_named_by(self, sentence: str) -> bool:
        """Whether a sentence names the cause."""
        return all(re.search(name, sentence, re.IGNORECASE) for name in self.names)


def sample(
    illnesses: Mapping[str, Illness], models: Mapping[str, str], reaches: Callable[[str], bool]
) -> Iterator[tuple[str, str, int]]:
    """Names of illnesses and models, and which size of the cause.

    The quick tier takes one model for each illness, another one each time; the full tier takes all
    models in all sizes.
    """
    names, full = list(models), reaches("full")
    for i, (name, illness) in enumerate(illnesses.items()):
        for j, model in enumerate(names):
            for number in range(len(illness.sizes)):
                if full or (j == i % len(names) and number == i % len(illness.sizes)):
                    yield name, model, number
