"""What stands under a figure: what its panels show, of how much data, and what ± is."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ipu.experiments.lab.result import Result
from ipu.run.sentences import capital
from ipu.run.verdict import SPREAD

#: Parameters that say how often something was done, or to how much.
COUNTS = (
    "seeds", "pairs", "draws", "repeats", "lanes", "stochastic lanes", "products", "terms",
    "additions", "samples", "epochs", "steps", "batches", "entries",
)
_PANEL = re.compile(r'<g class="panel"([^>]*)>')
_WORDS = re.compile(r'data-(title|x-label|y-label)="([^"]*)"')
#: Mathematics in a label, and an exponent in it.
_MATH, _POWER = re.compile(r"\$([^$]*)\$"), re.compile(r"\^\{([^}]*)\}")


def caption(svg: str, result: Result, meta: Mapping[str, Any]) -> str:
    """The caption of a stored figure, from its panels and its result; n first, then ±.

    >>> panel = '<g class="panel" data-title="Sums" data-x-label="n" data-y-label="sum">'
    >>> rows = [{"n": 1, "sum": 0.5}, {"n": 2, "sum": 1.0}]
    >>> caption(panel, Result(rows, "1", "", {"lanes": 3}), {"seed": 0})
    'Sums: sum against n. n: 2 rows of data.csv, lanes 3, seed 0.'
    """
    panels = "; ".join(_panels(svg))
    counts = [f"{len(result.rows)} rows of data.csv", *_counts(result.parameters)]
    if "seed" in meta:
        counts.append(f"seed {meta['seed']}")
    text = f"{capital(panels)}. " if panels else ""
    return f"{text}n: {', '.join(counts)}." + (f" {SPREAD}" if "±" in svg + result.answer else "")


def _panels(svg: str) -> Iterator[str]:
    """Each panel that says what it shows, once."""
    texts: dict[str, None] = {}
    for attributes in _PANEL.findall(svg):
        words = {name: _plain(html.unescape(text).replace("\n", " "))
                 for name, text in _WORDS.findall(attributes)}
        axes = " against ".join(filter(None, (words.get("y-label"), words.get("x-label"))))
        texts[": ".join(filter(None, (words.get("title"), axes)))] = None
    yield from filter(None, texts)


def _plain(text: str) -> str:
    """A label without the marks that only a picture draws.

    >>> _plain("Highest loss scale: $2^{17}$"), _plain(r"$2^e \\leq |x|$")
    ('Highest loss scale: 2^17', '2^e ≤ |x|')
    """
    return _MATH.sub(lambda label: _POWER.sub(r"^\1", label[1]).replace(r"\leq", "≤"), text)


def _counts(parameters: Mapping[str, Any]) -> Iterator[str]:
    for name in COUNTS:
        value = parameters.get(name)
        if isinstance(value, (list, tuple)):
            yield f"{len(value)} {name}"
        elif isinstance(value, int):
            yield f"{name} {value}"
