"""Order of values: **exhaustive** over the codes of 8-bit formats, **law** against the Context."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise import order
from fpsim.elementwise.codes import from_codes
from fpsim.records.settings import Settings

FORMATS = [fp.E5M2, fp.E4M3FN, fp.F143, fp.E2M3FN]


def values(fmt: fp.Format) -> np.ndarray:
    return fp.decode(np.arange(fmt.n_codes), fmt)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
def test_keys_order_every_pair_as_numbers_zeros_and_nan(fmt: fp.Format) -> None:
    x = values(fmt)
    keys = order.keys(x)
    less = keys[:, None] < keys
    numbers = ~np.isnan(x)
    zeros = (x == 0)[:, None] & (x == 0)
    expected = np.where(
        zeros, np.signbit(x)[:, None] & ~np.signbit(x),
        np.where(numbers[:, None] & numbers, x[:, None] < x, numbers[:, None] & ~numbers),
    )
    assert np.array_equal(less, expected)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_extrema_of_every_pair_and_triple_are_the_contexts(fmt: fp.Format, name: str) -> None:
    settings, context = Settings(fmt), fp.Context(fmt)
    x = values(fmt)
    pairs = np.stack(np.meshgrid(x, x), -1).reshape(-1, 2)
    rng = np.random.default_rng(1)
    triples = rng.choice(x, (4096, 3))
    for rows in (pairs, triples):
        result, flags = order.extreme_along(name, rows, settings)
        columns = [context.wrap(np.ascontiguousarray(c)) for c in rows.T]
        expected = columns[0]
        for column in columns[1:]:
            expected = getattr(context, name)(expected, column)
        assert np.array_equal(context.wrap(result).codes(), expected.codes())
        assert bool(flags.any()) == bool(context.flags & fp.Flags.INVALID)


@pytest.mark.parametrize("fmt", FORMATS, ids=str)
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_the_place_is_the_first_that_has_the_extreme(fmt: fp.Format, name: str) -> None:
    settings = Settings(fmt)
    rows = np.random.default_rng(2).choice(values(fmt), (4096, 5))
    place, _ = order.place_along(name, rows, settings)
    extreme, _ = order.extreme_along(name, rows, settings)
    keys, wanted = order.keys(rows), order.keys(extreme)
    assert np.array_equal(place, (keys == wanted[:, None]).argmax(axis=1))


@pytest.mark.parametrize("policy", ["canonical", "propagate_first"])
@pytest.mark.parametrize("quiet_nan_raises", [False, True])
def test_nan_and_its_flags_are_those_of_a_chain(policy: str, quiet_nan_raises: bool) -> None:
    context = fp.Context(fp.BINARY16, nan=policy, quiet_nan_raises=quiet_nan_raises, count=True)
    codes = np.array([0x3C00, 0x7E11, 0x7D01, 0xFE22, 0x0000, 0x8000, 0x7C00], np.uint16)
    for k in range(len(codes)):
        for n in range(1, 7):
            x = context.unpack(np.roll(codes, k)[:n])
            chain = x[0]
            context.clear_flags()
            for i in range(1, n):
                chain = context.maximum(chain, x[i])
            raised = context.flags
            context.clear_flags()
            assert context.max(x).codes() == chain.codes()
            assert context.flags == raised
            context.clear_flags()
            context.argmax(x)
            assert context.flags == raised


def test_subnormals_are_zeros_where_operands_are_flushed() -> None:
    context = fp.Context(fp.BINARY16, subnormals="flush_both")
    x = context.wrap(np.float32([-(2.0**-24), 0.0, 2.0**-24]))
    assert context.max(x).codes() == 0
    assert context.argmax(x) == 1
    assert context.argmin(x) == 0
    assert not x.any()
    assert np.count_nonzero(x) == 0
    assert not bool(x[2])


def test_different_values_come_with_their_first_places() -> None:
    x = np.float32([[2, -0.0, np.nan], [0.0, np.nan, -1]])
    first, inverse, counts = order.distinct(x)
    assert first.tolist() == [5, 1, 0, 2]
    assert inverse.tolist() == [[2, 1, 3], [1, 3, 0]]
    assert counts.tolist() == [1, 2, 1, 2]


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (2, 0, 1), ()])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reduced_shapes_and_rows_are_numpys(axis, keepdims: bool) -> None:  # type: ignore[no-untyped-def]
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    expected = x.sum(axis, keepdims=keepdims)
    assert order.reduced_shape(x.shape, axis, keepdims) == expected.shape
    assert np.array_equal(order.rows(x, axis).sum(axis=1).reshape(expected.shape), expected)


def test_sorting_keeps_zeros_and_nan_apart() -> None:
    half = fp.Context(fp.BINARY16)
    x = half.array([np.nan, 0.0, np.inf, -0.0, -1.0, -np.inf, -0.0])
    assert [hex(c) for c in np.sort(x).codes()] == [
        "0xfc00", "0xbc00", "0x8000", "0x8000", "0x0", "0x7c00", "0x7e00",
    ]
    assert np.argsort(x).tolist() == [5, 4, 3, 6, 1, 2, 0]
    assert half.flags == fp.Flags.NONE


def test_the_total_order_is_that_of_signed_codes() -> None:
    """Every pair of a format of five bits: -NaN, -inf … -0, +0 … inf, NaN (IEEE 754-2019 §5.10)."""
    tiny = fp.Format.custom(2, 3)
    codes = np.arange(tiny.n_codes, dtype=tiny.code_dtype)
    x = from_codes(codes, tiny)
    place = [int(c) if c < 16 else 15 - int(c) for c in codes]
    expected = np.less_equal.outer(place, place)
    assert (order.is_total_order(x[:, None], x, tiny) == expected).all()


def test_total_order_of_a_context_raises_nothing_and_takes_numbers() -> None:
    half = fp.Context(fp.BINARY16, traps=fp.Flags.INVALID, subnormals="flush_both")
    x = half.unpack(np.uint16([0xFE00, 0xFD01, 0x8001, 0x8000, 0x0000, 0x0001, 0x7D01, 0x7E00]))
    assert half.total_order(x[:-1], x[1:]).all()
    assert not half.total_order(x[1:], x[:-1]).any()
    assert half.total_order(x, 0.0).tolist() == [True] * 5 + [False] * 3
    assert half.total_order(x, -1e9).tolist() == [True] * 2 + [False] * 6
    assert half.total_order(x[:4], x[7:3:-1], magnitudes=True).all()
    assert half.flags == fp.Flags.NONE
