"""Laws, as properties of many formats and modes, and the proof that each law can fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fpsim import testing
from fpsim.array import Array
from fpsim.context import Context
from fpsim.core import Core
from fpsim.elementwise.codes import is_held
from fpsim.records.flags import Flags
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    E2M1FN,
    E4M3FN,
    E5M2,
    F143,
    TF32,
    Format,
)
from fpsim.records.rounding import MODES, RNE, RTN, RTO, RTP
from tests.tiers import pick

ALL = [BINARY16, BFLOAT16, TF32, BINARY32, E4M3FN, E5M2, F143, E2M1FN, Format.custom(6, 9)]
EVERY = [m for m in MODES.values() if not m.stochastic]
#: One format of each kind of lanes and zeros, one mode of each kind: pairs are kernels to compile,
#: and the laws of sums need many operations.
FORMATS = pick([BINARY16, BINARY32, E4M3FN, F143], ALL, ALL)
DETERMINISTIC = pick([RNE, RTN, RTP, RTO], EVERY, EVERY)
formats = st.sampled_from(FORMATS)
contexts = st.builds(lambda f, m: Context(f, rounding=m), formats, st.sampled_from(DETERMINISTIC))
few_contexts = st.builds(
    lambda case: Context(case[0], rounding=case[1]),
    st.sampled_from(
        pick(
            [(BINARY16, RNE), (BINARY16, RTN), (BINARY32, RNE)],
            *[[(fmt, mode) for fmt in ALL for mode in EVERY]] * 2,
        )
    ),
)


def reals(fmt: Format) -> st.SearchStrategy[float]:
    """Any finite float, the hard ones first."""
    return st.one_of(
        testing.near_tie(fmt), testing.near_overflow(fmt), testing.subnormal(fmt),
        testing.numbers(fmt), st.floats(allow_nan=False, allow_infinity=False),
    )


@given(few_contexts, st.data())
def test_sums_and_products_obey_their_laws(context: Context, data: st.DataObject) -> None:
    x, y = data.draw(testing.numbers(context.format)), data.draw(testing.numbers(context.format))
    testing.sterbenz(context, abs(x), abs(y))
    testing.sterbenz(context, abs(x), abs(x))
    testing.two_sum(context, x, y)
    testing.fast_two_sum(context, x, y)
    testing.product_error(context, x, y)
    testing.exact_zero_sign(context, x)
    testing.power_of_two_scaling(context, x, data.draw(st.integers(-20, 20)))


@given(few_contexts, st.data())
def test_close_operands_have_exact_differences(context: Context, data: st.DataObject) -> None:
    fmt = context.format
    y = data.draw(testing.numbers(fmt).filter(lambda v: 0 < v <= fmt.max / 2))
    unit = fmt.ulp(y / 2)
    x = y / 2 + unit * data.draw(st.integers(0, math.floor(1.5 * y / unit)))
    if float(np.asarray(x, fmt.carrier)) == x and is_held(np.asarray(x, fmt.carrier), fmt):
        testing.sterbenz(context, x, y)


@given(contexts, st.data())
def test_roundings_obey_their_laws(context: Context, data: st.DataObject) -> None:
    x, y = data.draw(reals(context.format)), data.draw(reals(context.format))
    testing.monotone(context, x, y)
    testing.monotone(context, x, math.nextafter(x, math.inf))
    testing.sign_symmetric(context, x)
    testing.idempotent(context, x)
    testing.directed_bounds(context, x)
    testing.error_bound(context, x)
    testing.overflow_result(context, x)


@given(st.sampled_from(pick([BINARY16, BINARY32, E4M3FN], ALL, ALL)), st.data())
def test_stochastic_rounding_obeys_its_laws(fmt: Format, data: st.DataObject) -> None:
    context, x = Context(fmt), data.draw(reals(fmt))
    bits = data.draw(st.integers(1, fmt.sr_bits_max))
    r = data.draw(st.integers(0, (1 << bits) - 1))
    testing.sr_between(context, x, bits, r)
    testing.sr_zero_truncates(context, x, bits)
    testing.sr_keeps_exact(context, data.draw(testing.numbers(fmt)), bits, r)


@given(formats, st.data())
def test_strategies_give_what_they_say(fmt: Format, data: st.DataObject) -> None:
    assert 0 <= data.draw(testing.codes(fmt)) < fmt.n_codes
    small = data.draw(testing.subnormal(fmt))
    assert 0 < abs(small) < fmt.smallest_normal
    assert is_held(np.asarray(small, fmt.carrier), fmt)
    array = data.draw(testing.arrays(fmt, (2, 3)))
    assert (array.shape, array.dtype) == ((2, 3), fmt.carrier)
    assert is_held(array, fmt).all()
    tie = data.draw(testing.near_tie(fmt))
    # A value lies within half a unit and a quarter of it.
    down, up = (float(Context(fmt, rounding=m).array(tie)) for m in (RTN, RTP))
    assert tie == 0 or abs(tie) > fmt.max or abs(tie - (down + up) / 2) <= (up - down) / 4
    assert abs(data.draw(testing.near_overflow(fmt))) >= fmt.max - fmt.ulp(fmt.max) - 1e-3


# Each law is broken once: by a context that computes as it says and then spoils the result ------


class Broken(Context):
    """A context whose every rounded result passes through `spoil`."""

    spoil: Spoil

    @classmethod
    def by(cls, spoil: Spoil) -> Broken:
        return cls.around(Context(BINARY16), spoil)

    @classmethod
    def around(cls, good: Context, spoil: Spoil) -> Broken:
        context, core = cls.__new__(cls), good.core
        context.spoil = spoil
        context.core = BrokenCore(
            context, core.settings, core.source, core.traps, count=core.counts is not None
        )
        return context

    def replace(self, **changes: Any) -> Context:
        return Broken.around(super().replace(**changes), self.spoil)


class BrokenCore(Core):
    """What spoils them."""

    context: Broken

    def rounded(self, *arguments: Any, **choices: Any) -> Array:
        good = super().rounded(*arguments, **choices)
        return Array(np.asarray(self.context.spoil(good.values), np.float32), self.context)


Spoil = Callable[[np.ndarray], np.ndarray]


def doubled(v: np.ndarray) -> np.ndarray:
    return 2 * v


def negated(v: np.ndarray) -> np.ndarray:
    return -v


def upward(v: np.ndarray) -> np.ndarray:
    return v + np.float32(BINARY16.ulp(float(v)))


def finite(v: np.ndarray) -> np.ndarray:
    return np.nan_to_num(v, posinf=65504.0, neginf=-65504.0)


@pytest.mark.parametrize(
    ("law", "spoil", "operands"),
    [
        (testing.sterbenz, doubled, (1.5, 1.0)),
        (testing.two_sum, doubled, (1.0, 2.0**-20)),
        (testing.fast_two_sum, doubled, (1.0, 2.0**-20)),
        (testing.product_error, doubled, (1 + 2.0**-10, 1 + 2.0**-10)),
        (testing.monotone, negated, (1.0, 2.0)),
        (testing.sign_symmetric, upward, (0.1,)),
        (testing.idempotent, upward, (0.1,)),
        (testing.power_of_two_scaling, upward, (1.5, 3)),
        (testing.directed_bounds, upward, (0.1,)),
        (testing.error_bound, upward, (1.0,)),
        (testing.exact_zero_sign, negated, (1.0,)),
        (testing.overflow_result, finite, (1e6,)),
        (testing.sr_between, doubled, (1.1, 4, 3)),
        (testing.sr_keeps_exact, upward, (1.5, 4, 3)),
        (testing.sr_zero_truncates, upward, (1.0001, 4)),
    ],
)
def test_every_law_can_be_broken(
    law: Callable[..., None], spoil: Spoil, operands: tuple[float, ...]
) -> None:
    law(Context(BINARY16), *operands)
    with pytest.raises(AssertionError, match="in Context"):
        law(Broken.by(spoil), *operands)


TINY = BINARY16.smallest_normal


@pytest.mark.parametrize("policy", ["keep", "flush_results", "flush_both"])
@pytest.mark.parametrize(
    ("law", "operands"),
    [
        (testing.sterbenz, (1.5 * TINY, TINY)),
        (testing.two_sum, (2.0**-5, TINY * (1 + 2.0**-10))),
        (testing.fast_two_sum, (2.0**-5, TINY * (1 + 2.0**-10))),
        (testing.product_error, (0.75 * TINY, 2.0**15)),
        (testing.power_of_two_scaling, (0.75 * TINY, 3)),
        (testing.sr_between, (0.7 * TINY, 4, 3)),
        (testing.sr_zero_truncates, (0.7 * TINY, 4)),
        (testing.sr_keeps_exact, (0.75 * TINY, 4, 3)),
        (testing.directed_bounds, (0.7 * TINY,)),
        (testing.error_bound, (0.7 * TINY,)),
        (testing.sign_symmetric, (1e6,)),
        (testing.monotone, (1e6, 1e7)),
        (testing.idempotent, (1e6,)),
        (testing.overflow_result, (1e6,)),
        (testing.exact_zero_sign, (1.0,)),
    ],
)
def test_laws_hold_in_contexts_that_flush_and_trap(
    law: Callable[..., None], operands: tuple[float, ...], policy: str
) -> None:
    rounding = pick(RTN if policy == "keep" else RNE, RTN, RTN)
    law(Context(BINARY16, rounding=rounding, subnormals=policy, traps=Flags(31)), *operands)
