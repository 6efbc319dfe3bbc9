"""Extrema over axes as operations of a Context (**corners**)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp

HALF = fp.BINARY16
SIGNALLING = np.array([[0x3C00, 0x7C01], [0x4000, 0x3800]], np.uint16)


def test_extrema_take_out_and_keepdims() -> None:
    context = fp.Context(HALF)
    x = context.array([[1.0, 5.0], [7.0, 3.0]])
    out = context.zeros((2, 1))
    assert context.max(x, 1, keepdims=True, out=out) is out
    assert out.values.tolist() == [[5.0], [7.0]]
    assert np.min(x, axis=0, out=context.zeros(2)).values.tolist() == [1.0, 3.0]
    assert context.argmax(x, 1, keepdims=True).tolist() == [[1], [0]]
    with pytest.raises(ValueError, match=r"out has shape \(2,\)"):
        context.max(x, 1, keepdims=True, out=context.zeros(2))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_a_trap_names_the_row_and_publishes_nothing(name: str) -> None:
    context = fp.Context(HALF, traps=fp.Flags.INVALID, count=True)
    x = context.unpack(SIGNALLING)
    with pytest.raises(fp.FloatingPointTrap) as trap:
        getattr(context, name)(x, 1)
    assert trap.value.index == (0,)
    assert trap.value.operands[0] == 1.0
    assert np.isnan(trap.value.operands[1])
    assert context.counts is not None
    assert not list(context.counts)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_nothing_has_no_extreme(name: str) -> None:
    context = fp.Context(HALF)
    with pytest.raises(ValueError, match="imum of no elements has no"):
        getattr(context, name)(context.zeros((2, 0)), 1)
    assert getattr(context, name)(context.zeros((0, 2)), 1).shape == (0,)


def test_the_number_wins_where_it_is_asked_to() -> None:
    context = fp.Context(HALF)
    x = context.array([np.nan, 1.0, 3.0])
    assert np.isnan(context.max(x).item())
    assert context.max(x, number_wins=True).item() == np.nanmax(x).item() == 3.0
    assert context.min(x, number_wins=True).item() == 1.0


@pytest.mark.parametrize(
    "bounds", [(-1.0, 2.0), (None, 0.5), (0.5, None), (2.0, -1.0), (None, None)]
)
def test_clip_is_a_minimum_of_a_maximum(bounds) -> None:  # type: ignore[no-untyped-def]
    context = fp.Context(HALF)
    x = context.array([np.nan, -0.0, 0.0, -np.inf, 0.75, 3.0])
    least, most = bounds
    expected = x if least is None else context.maximum(x, least)
    expected = expected if most is None else context.minimum(expected, most)
    result = context.clip(x, least, most)
    assert result.codes().tolist() == expected.codes().tolist()
    assert not np.shares_memory(result, x)
    y = x.copy()
    assert context.clip(y, least, most, out=y) is y
    assert y.codes().tolist() == expected.codes().tolist()


def test_extrema_never_count_as_operations() -> None:
    context = fp.Context(HALF, rounding="SR")
    x = context.wrap(np.float32([1.0, 2.0]))
    context.max(x), context.argmin(x), context.clip(x, 0, 1), context.floor(x)
    assert context.operation == 0
