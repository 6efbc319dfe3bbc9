"""Outputs of products: against the elementwise conversion and the oracle's words (differential)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.constants import plan
from fpsim.judge.oracle.random import product_R
from fpsim.kernels.by_unit.outputs import output_kernel
from fpsim.kernels.random.words import NO_WORDS
from fpsim.records.settings import Settings
from fpsim.state.bits import Replay
from fpsim.state.draws import draw_places

#: Numbers of outputs where no words are made.
NOTHING = (0, np.uint64(0), np.uint64(0), 0, 0)


@pytest.mark.parametrize("rounding", [fp.RNE, fp.RTN], ids=repr)
@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.E4M3FN], ids=str)
def test_outputs_are_rounded_like_elements(fmt, rounding):
    """Midpoints of both signs, overflow, infinity, NaN; rows of 7, so no vector is full."""
    ulp = fmt.eps
    x = [s * (1 + n * ulp / 4) for n in range(8) for s in (1, -1)]
    x += [fmt.max, 1.01 * fmt.max, 2 * fmt.max, -2 * fmt.max, np.inf, -np.inf, np.nan]
    x += [fmt.smallest_subnormal * n / 4 for n in range(-6, 6)]
    values = np.array(x, np.float32)
    assert len(values) == 35
    settings = Settings(fmt, rounding)
    program = plan("convert", settings, 32)
    element_flags = np.zeros(len(values), np.uint8)
    loop = output_kernel(program.mode, False, 0, False)
    context = fp.Context(fmt, rounding=rounding)
    expected = context.array(values.astype(np.float64))
    raised = loop(values, element_flags, (5, 7), NO_WORDS, NOTHING, program.constants)
    assert np.array_equal(values, expected.values, equal_nan=True)
    zero = values == 0
    assert np.array_equal(np.signbit(values)[zero], np.signbit(expected.values)[zero])
    assert raised == np.bitwise_or.reduce(element_flags)
    assert raised == int(context.flags) & int(fp.Flags.OVERFLOW | fp.Flags.INVALID)
    assert element_flags[:16].max() == 0


@pytest.mark.parametrize("bits", [9, 20])
@pytest.mark.parametrize("shape", [(1, 1030), (3, 21), (4, 16)])
def test_words_are_those_of_the_outputs(shape, bits):
    """Columns 5 … of a wider result; half a word, or a whole one for more than 16 digits."""
    fmt = fp.BINARY16
    context = fp.Context(fmt, rounding=fp.SR(bits), seed=11)
    wide = (shape[0], shape[1] + 9)
    places = draw_places(context.core, range(2, 6), wide).part(0, 5)
    x = np.random.default_rng(bits).standard_normal(shape).astype(np.float32)
    program, place = plan("convert", context.core.settings, 32), 5
    _, step, *key, first, passed = places.random
    values, flags = x.copy(), np.zeros(shape, np.uint8)
    loop = output_kernel(program.mode, False, program.residual, places.wide)
    loop(
        values.reshape(-1), flags.reshape(-1), shape, NO_WORDS,
        (step, *key, first, place + passed), program.constants,
    )
    numbers = [i * wide[1] + 5 + j for i in range(shape[0]) for j in range(shape[1])]
    top = np.array([product_R(11, 0, i, place, bits) for i in numbers], np.uint64)
    replayed = fp.Context(fmt, rounding=fp.SR(bits), bits=Replay([top.reshape(shape)]))
    assert np.array_equal(values, replayed.array(x.astype(np.float64)).values)
    original = x.copy()
    output_kernel(program.mode, True, program.residual, places.wide)(
        original.reshape(-1), flags.reshape(-1), shape, top.astype(np.uint32), NOTHING,
        program.constants,
    )
    assert np.array_equal(original, values)
    assert not flags.any()


@pytest.mark.parametrize("subnormals", ["keep", "flush_both"])
@pytest.mark.parametrize("rounding", [fp.SR(9), fp.SR_EQUAL], ids=repr)
@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.E4M3FN, fp.BFLOAT16], ids=str)
def test_rare_values_among_ordinary_ones(fmt, rounding, subnormals):
    """A value at an edge of the short way in each vector, and one vector of them alone."""
    below = np.float32(fmt.max)
    edges = [0.0, fmt.smallest_normal, fmt.smallest_subnormal, np.inf, np.nan, fmt.max]
    edges += [float(np.nextafter(np.float32(fmt.smallest_normal), np.float32(0)))]
    edges += [fmt.smallest_normal * (1 - fmt.eps / 64), fmt.smallest_subnormal * 1.3]
    edges += [float(np.nextafter(below, np.float32(np.inf))), float(np.nextafter(below, 0))]
    edges += [fmt.max * (1 + fmt.eps / 8)]
    edges = np.array([*edges, *np.negative(edges)], np.float32)
    rng = np.random.default_rng(3)
    values = rng.uniform(1, 4, (len(edges) + 2, 16)).astype(np.float32)
    values[range(len(edges)), rng.integers(0, 16, len(edges))] = edges
    values[-2] = rng.permutation(edges)[:16]
    r = rng.integers(0, 2 if rounding == fp.SR_EQUAL else 512, values.shape, np.uint64)
    choices = {"rounding": rounding, "subnormals": subnormals}
    context = fp.Context(fmt, bits=Replay([r]), **choices)
    program = plan("convert", Settings(fmt, **choices), 32)
    element_flags = np.zeros(values.shape, np.uint8)
    expected = context.array(values.astype(np.float64)).values
    raised = output_kernel(program.mode, True, program.residual, False)(
        values.reshape(-1), element_flags.reshape(-1), values.shape,
        r.astype(np.uint32).reshape(-1), NOTHING, program.constants,
    )
    assert np.array_equal(values, expected, equal_nan=True)
    assert np.array_equal(np.signbit(values), np.signbit(expected))
    assert raised == int(context.flags) & int(fp.Flags.OVERFLOW | fp.Flags.INVALID)
    assert raised == np.bitwise_or.reduce(element_flags.reshape(-1))
