"""Traps of a Context and its counters: what they name, publish and count (corners)."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import fpsim as fp


def half(**choices: object) -> fp.Context:
    return fp.Context(fp.BINARY16, **choices)  # type: ignore[arg-type]


@pytest.mark.source("S4-39")
def test_a_trap_publishes_nothing_and_names_the_first_guilty_element() -> None:
    context = half(traps=fp.Flags.OVERFLOW, rounding=fp.SR(), seed=5)
    x = context.wrap(np.float32([[1.0, 2.0], [60000.0, 49984.0]]))
    out = context.zeros((2, 2))
    with pytest.raises(fp.FloatingPointTrap) as caught:
        context.multiply(x, 2.0, out=out)
    trap = caught.value
    assert (trap.operation, trap.index, trap.operands) == ("multiply", (1, 0), (60000.0, 2.0))
    assert fp.Flags.OVERFLOW in trap.flags
    assert not out.values.any()
    assert context.operation == 0
    assert fp.Flags.OVERFLOW in context.flags


def test_a_trap_passes_between_processes() -> None:
    context = half(traps=fp.Flags.DIVBYZERO)
    with pytest.raises(fp.FloatingPointTrap) as caught:
        context.divide(1.0, context.zeros(2))
    trap = pickle.loads(pickle.dumps(caught.value))
    assert str(trap) == str(caught.value)
    assert (trap.flags, trap.index, trap.operands) == (fp.Flags.DIVBYZERO, (0,), (1.0, 0.0))


def test_comparisons_trap_too() -> None:
    context = half(traps=fp.Flags.INVALID)
    with pytest.raises(fp.FloatingPointTrap, match="less raised INVALID"):
        context.less(context.array([1.0, np.nan]), 2.0)
    assert not context.equal(context.array([np.nan]), 2.0).any()


def test_counts_tell_flags_zeros_and_subnormals_of_each_operation() -> None:
    context = half(count=True)
    x = context.array([1e-7, 1e-9, 1.0, 70000.0])
    x * 0.5
    assert context.counts is not None
    assert context.counts["", "convert"]["UNDERFLOW"] == 2
    assert context.counts["", "convert"]["OVERFLOW"] == 1
    assert context.counts["", "convert"]["zeros"] == 1
    assert context.counts["", "convert"]["subnormals"] == 1
    assert context.counts["", "multiply"]["results"] == 4


def test_comparisons_and_integers_are_counted_without_zeros_and_subnormals() -> None:
    context = half(count=True)
    x = context.array([0.0, 2.0**-20, 1.5, float("nan")])
    assert context.counts is not None
    context.less(x, 1.0)
    context.to_integers(x, np.int32)
    assert +context.counts["", "less"] == {"results": 4, "INVALID": 1}
    assert +context.counts["", "to_integers"] == {"results": 4, "INVALID": 1, "INEXACT": 2}
    context.traps = fp.Flags.INVALID
    with pytest.raises(fp.FloatingPointTrap):
        context.less(x, 1.0)
    assert context.counts["", "less"]["results"] == 4
