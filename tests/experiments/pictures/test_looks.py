"""Colours: every kind has one (exhaustive), bars are told apart in grey (law)."""

from __future__ import annotations

from itertools import combinations

import pytest

from ipu.experiments.pictures.looks import DARK_INK, DOES, HOLDS, LIGHT_INK, ink_on, patches, what
from ipu.plan.arguments import OFFLOADS
from ipu.plan.memory import KINDS
from ipu.plan.schedule import Phase


def grey(colour):
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return (0.299 * red + 0.587 * green + 0.114 * blue) / 255


def test_everything_that_a_plan_does_or_holds_has_a_colour():
    assert set(DOES) == {phase.value for phase in Phase} | set(OFFLOADS)
    assert set(HOLDS) == set(KINDS)
    for colours in (DOES, HOLDS):
        assert len(set(colours.values())) == len(colours)
    for kind in OFFLOADS:
        assert what(f"{kind} in") == what(f"{kind} out") == kind


def test_forward_backward_and_recomputation_differ_in_print_without_colour():
    shades = [grey(DOES[kind]) for kind in ("forward", "backward", "recompute")]
    assert all(abs(a - b) > 0.15 for a, b in combinations(shades, 2))


@pytest.mark.parametrize("colour", DOES.values())
def test_numbers_are_readable_on_every_bar(colour):
    assert abs(grey(ink_on(colour)) - grey(colour)) > 0.35
    assert ink_on(colour) in (DARK_INK, LIGHT_INK)


def test_a_legend_names_what_occurs_in_the_order_of_the_colours():
    words = [patch.get_label() for patch in patches({"copy", "forward", "state"}, DOES)]
    assert words == ["forward", "copy to a neighbour", "state, remote memory"]
    assert [patch.get_label() for patch in patches({"fifo"}, HOLDS)] == ["queues (FIFO)"]
