"""Colours of what IPUs do and hold, told apart in print and by people with colour-blindness.

Okabe and Ito's colours. In grey, recomputation is light, forward stages are in the middle and
backward stages dark; numbers on bars have the ink that is readable there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ipu.run.pages.drawing import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

YELLOW, WINE, OLIVE, STONE, BROWN = "#F0E442", "#882255", "#999933", "#BBBBBB", "#8C510A"
#: Inks on light and on dark bars; a page leaves them as they are.
DARK_INK, LIGHT_INK = "#111111", "#FEFEFE"

#: Of events, by kind; a transfer's direction does not count.
DOES = {
    "forward": SKY, "backward": BLUE, "recompute": YELLOW, "copy": GREY, "reduce": WINE,
    "update": GREEN, "infeed": ORANGE, "outfeed": BROWN, "state": PURPLE, "activations": RED,
    "accumulators": OLIVE, "weights": STONE,
}
#: Of memory, by kind.
HOLDS = {
    "weights": STONE, "accumulators": OLIVE, "state": PURPLE, "fifo": BLUE, "activations": RED,
    "tape": YELLOW, "work": GREEN, "io": ORANGE,
}
#: How a legend names them where the kind alone does not say it.
WORDS = {
    "copy": "copy to a neighbour", "reduce": "sum over replicas", "fifo": "queues (FIFO)",
    "tape": "recomputed tape", "io": "feeds",
}
#: Kinds that a timeline moves between the chip and remote memory.
REMOTE = ("state", "activations", "accumulators", "weights")


def what(kind: str) -> str:
    """The kind of an event without its direction.

    >>> what("state in"), what("forward")
    ('state', 'forward')
    """
    return kind.removesuffix(" in").removesuffix(" out")


def ink_on(colour: str) -> str:
    """The ink that is readable on a colour.

    >>> ink_on("#FFFFFF") == DARK_INK, ink_on("#000000") == LIGHT_INK
    (True, True)
    """
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return DARK_INK if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else LIGHT_INK


def patches(kinds: Iterable[str], colours: dict[str, str]) -> list[Patch]:
    """Legend entries of the kinds that occur, in the order of the colours."""
    from matplotlib.patches import Patch

    shown = set(kinds)
    words = dict(WORDS)
    if colours is DOES:
        words |= {kind: f"{kind}, remote memory" for kind in REMOTE}
    return [
        Patch(facecolor=colour, edgecolor="#444444", linewidth=0.4, label=words.get(kind, kind))
        for kind, colour in colours.items()
        if kind in shown
    ]


def legend_below(figure: Figure, handles: Sequence[Artist], columns: int = 8) -> None:
    """One legend for the whole figure, under its panels."""
    figure.legend(handles=handles, loc="outside lower center", ncols=min(columns, len(handles)),
                  fontsize=9, handlelength=1.2, columnspacing=1.2)
