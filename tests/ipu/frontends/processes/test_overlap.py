"""Overlap of sums with the backward pass: spans by hand (golden), bounds (law)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu.frontends.processes.overlap import Layer, Span, account


def test_three_layers_by_hand():
    """A long sum in the middle: the last gradient waits for it, the backward pass does not."""
    done = account([Layer(1, 1, 1, 1), Layer(1, 1, 5, 1), Layer(1, 1, 1, 1)])
    assert done.backward == (Span(0, 1), Span(1, 2), Span(2, 3))
    assert done.out == (Span(1, 2), Span(2, 3), Span(3, 4))
    assert done.sums == (Span(2, 3), Span(3, 8), Span(8, 9))
    assert done.back == (Span(3, 4), Span(8, 9), Span(9, 10))
    assert (done.computed, done.exposed, done.communicated, done.hidden) == (3, 7, 13, 6)


def test_what_is_fast_is_hidden_but_for_the_last_gradient():
    done = account([Layer(10, 1, 1, 1)] * 4)
    assert (done.exposed, done.hidden) == (3, 9)
    assert account([Layer(5, 0, 0, 0)] * 2).exposed == 0


LENGTHS = st.integers(0, 50)


@given(st.lists(st.builds(Layer, LENGTHS, LENGTHS, LENGTHS, LENGTHS), min_size=1, max_size=6))
def test_nothing_overlaps_itself_and_nothing_is_earlier_than_it_can_be(layers):
    done = account(layers)
    for column in done:
        assert all(a.end <= b.start for a, b in pairwise(column))
    for before, after in pairwise(done):
        assert all(a.end <= b.start for a, b in zip(before, after, strict=True))
    last = layers[-1]
    assert last.out + last.sum + last.back <= done.exposed <= done.communicated
    assert done.computed == sum(layer.backward for layer in layers)
    assert 0 <= done.hidden <= done.communicated


@pytest.mark.parametrize(
    ("layers", "message"), [([], "no backward pass"), ([Layer(1, -1, 1, 1)], "seconds below 0")]
)
def test_what_is_no_backward_pass_is_refused(layers, message):
    with pytest.raises(ValueError, match=message):
        account(layers)
