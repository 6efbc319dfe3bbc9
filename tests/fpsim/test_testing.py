"""The tools for users' tests: what strategies reach, and where each law begins to speak (corners).

That laws hold, and that each can fail, is in `test_laws.py`; here operands stand on both sides of
every law's condition. Inside it a spoiled context breaks the law, outside it nothing is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from fpsim import testing
from fpsim.context import Context
from fpsim.elementwise.codes import from_codes
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY16, E2M1FN, E4M3FN, E5M2, F143, Format
from fpsim.records.rounding import MODES, RNE, RTN, RTP, RTZ
from tests.fpsim.test_laws import Broken, doubled
from tests.tiers import pick

#: One example is enough, so none is shrunk.
MANY = settings(max_examples=2_000, derandomize=True, database=None, phases=(Phase.generate,))
SMALL = pick([E2M1FN, F143], *[[E2M1FN, E4M3FN, E5M2, F143]] * 2)


def reaches(strategy: Any, predicate: Callable[[Any], bool]) -> bool:
    """Whether the strategy gives a value with this property."""
    try:
        find(strategy, predicate, settings=MANY)
    except NoSuchExample:
        return False
    return True


def upward(v: np.ndarray) -> np.ndarray:
    """A unit more, where there is one."""
    return v + np.float32(BINARY16.ulp(float(v))) if np.isfinite(v) else v


# Strategies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_every_corner_of_a_format_is_reached(fmt: Format) -> None:
    top = 1 << (fmt.bits - 1)
    for code in (0, 1, top - 1, top, top + 1, fmt.n_codes - 1, 1 << fmt.nmant):
        assert reaches(testing.codes(fmt), lambda c, code=code: c == code), hex(code)
    assert not reaches(testing.codes(fmt), lambda c: not 0 <= c < fmt.n_codes)


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_numbers_are_finite_values(fmt: Format) -> None:
    numbers = testing.numbers(fmt)
    for value in (fmt.max, -fmt.max, fmt.smallest_subnormal, fmt.smallest_normal, 1.0):
        assert reaches(numbers, lambda v, value=value: v == value)
    assert not reaches(numbers, lambda v: not math.isfinite(v))
    assert reaches(numbers, lambda v: v == 0 and math.copysign(1, v) < 0) == fmt.has_negative_zero


@pytest.mark.parametrize("fmt", SMALL, ids=str)
def test_subnormals_go_from_the_least_to_the_largest_in_both_signs(fmt: Format) -> None:
    largest = fmt.smallest_normal - fmt.smallest_subnormal
    for value in (fmt.smallest_subnormal, largest):
        for sign in (1, -1):
            assert reaches(testing.subnormal(fmt), lambda v, value=sign * value: v == value)
    assert not reaches(testing.subnormal(fmt), lambda v: not 0 < abs(v) < fmt.smallest_normal)


@pytest.mark.parametrize("fmt", pick([E5M2], *[[E2M1FN, E5M2]] * 2), ids=str)
def test_ties_are_reached_and_both_of_their_sides(fmt: Format) -> None:
    unit = 2.0 ** (1 - fmt.precision)
    tie = 1 + unit / 2
    for wanted in (lambda v: v == tie, lambda v: tie < v < tie + unit / 64,
                   lambda v: tie - unit / 64 < v < tie, lambda v: v == -tie):
        assert reaches(testing.near_tie(fmt), lambda v, w=wanted: w(v * 2.0 ** -_binade(v)))
    half = fmt.smallest_subnormal / 2
    assert reaches(testing.near_tie(fmt), lambda v: v == half)
    assert reaches(testing.near_tie(fmt), lambda v: v > fmt.max)


def _binade(v: float) -> int:
    return math.frexp(v)[1] - 1 if v else 0


@pytest.mark.parametrize("fmt", pick([BINARY16], *[[E4M3FN, E5M2, BINARY16]] * 2), ids=str)
def test_both_sides_of_overflow_are_reached(fmt: Format) -> None:
    near, half = testing.near_overflow(fmt), fmt.max + fmt.ulp(fmt.max) / 2
    for value in (fmt.max, half, math.nextafter(half, 0), math.nextafter(half, math.inf)):
        assert reaches(near, lambda v, value=value: v == value)
        assert reaches(near, lambda v, value=value: v == -value)
    assert reaches(near, lambda v: v > 1000 * fmt.max)
    assert not reaches(near, lambda v: not fmt.max - 2 * fmt.ulp(fmt.max) < abs(v) < math.inf)


def test_arrays_have_the_shape_and_the_elements_that_are_asked_for() -> None:
    for shape in (3, (2, 2), (), (0, 4)):
        array = find(testing.arrays(E4M3FN, shape), lambda a: True, settings=MANY)
        assert (array.shape, array.dtype) == (np.zeros(shape).shape, E4M3FN.carrier)
    ones = testing.arrays(E4M3FN, 2, elements=testing.codes(E4M3FN).filter(lambda c: c == 0x38))
    assert find(ones, lambda a: True, settings=MANY).tolist() == [1.0, 1.0]
    assert reaches(testing.arrays(F143, (2,)), lambda a: bool(np.isnan(a[1])))


def test_arrays_take_values_as_well_as_codes() -> None:
    drawn = find(
        testing.arrays(BINARY16, 2, testing.numbers(BINARY16)),
        lambda a: a[0] == -1.5,
        settings=MANY,
    )
    assert drawn.tolist()[0] == -1.5
    for elements, sentence in (
        (st.just(0.1), "elements gave 0.1, which is no value of binary16"),
        (st.just(65536), "elements gave 65536, which is no code of binary16"),
        (st.just(-1), "elements gave -1, which is no code of binary16"),
    ):
        with pytest.raises(ValueError, match=sentence):
            find(testing.arrays(BINARY16, 2, elements), lambda a: True, settings=MANY)


def test_shapes_reach_nothing_and_several_axes_and_arrays_take_them() -> None:
    arrays = testing.arrays(E4M3FN, testing.shapes())
    for wanted in (lambda a: a.shape == (), lambda a: 0 in a.shape, lambda a: a.ndim == 3):
        assert reaches(arrays, wanted)
    assert not reaches(testing.shapes(), lambda s: len(s) > 3 or any(n > 5 for n in s))


#: Properties that fail, and the most binary digits that a counter-example needs.
SIMPLE = [
    (lambda x: True, 1), (lambda x: x > 100, 1), (lambda x: x > 1, 1), (lambda x: x < 0, 1),
    (lambda x: abs(x) < 1, 1), (lambda x: 0 < x < 1, 1),
]


@pytest.mark.parametrize(("fails", "digits"), SIMPLE)
def test_counter_examples_shrink_to_numbers_of_few_digits(fails, digits) -> None:
    usual = settings(max_examples=2_000, derandomize=True, database=None)
    number = find(testing.numbers(BINARY16), fails, settings=usual)
    assert math.frexp(number)[0] * 2**digits % 1 == 0, number
    assert number != 65504


@pytest.mark.parametrize("fmt", [E2M1FN, E4M3FN, BINARY16, Format.custom(3, 3, bias=-15)], ids=str)
def test_the_order_of_simplicity_has_every_code_once(fmt: Format) -> None:
    code = testing._by_simplicity(fmt)
    assert sorted(map(code, range(fmt.n_codes))) == list(range(fmt.n_codes))


# Conditions of laws --------------------------------------------------------------------------

EMIN, TINY = BINARY16.emin, BINARY16.smallest_normal
MOST = BINARY16.max
FULL = 2 - 2.0**-10

#: Law, operands just inside its condition (a spoiled context breaks it), operands just outside.
EDGES: list[tuple[Callable[..., None], Any, list[tuple[Any, ...]], list[tuple[Any, ...]]]] = [
    (
        testing.sterbenz, doubled,
        [(1.0, 2.0), (2.0, 1.0), (1.5, 1.0), (1.0, 1.25)],
        [(1.0, 2.002), (2.002, 1.0), (-1.0, -1.5), (0.5, 1.25)],
    ),
    (
        # Full significands, whose product has 22 digits: eight times it is no value.
        testing.product_error, doubled,
        [(FULL / 2**4, FULL), (FULL, FULL), (FULL * 2**5, FULL * 2**4)],
        [(FULL / 2**5, FULL), (0.0, FULL), (FULL, -0.0), (FULL * 2**7, FULL * 2**8)],
    ),
    (
        testing.power_of_two_scaling, upward,
        [(1.5, EMIN), (2.0 * TINY, -1), (-1.0, 15), (MOST / 2, 1)],
        [(1.5, EMIN - 1), (1.5 * TINY, -1), (1.0, 16), (0.0, 3), (MOST, 1)],
    ),
    (
        testing.directed_bounds, upward,
        [(MOST,), (-MOST,), (0.1,), (-0.1,)],
        [(math.nextafter(MOST, math.inf),), (-1e6,)],
    ),
    (
        testing.error_bound, doubled,
        [(MOST / 4,), (0.1,), (-0.1,), (TINY / 2,)],
        [(math.nextafter(MOST, math.inf),), (-1e6,)],
    ),
    (
        testing.overflow_result, _spoiled_to_one := lambda v: np.ones_like(v),
        [(MOST + BINARY16.ulp(MOST),), (-MOST - BINARY16.ulp(MOST),), (1e300,)],
        [(math.nextafter(MOST + BINARY16.ulp(MOST), 0),), (math.inf,), (math.nan,), (1.5,)],
    ),
    (
        testing.idempotent, upward,
        [(MOST / 2,), (0.1,), (-0.0,)],
        [(1e6,), (-math.inf,)],
    ),
    (
        testing.sr_between, doubled,
        [(1.1, 4, 0), (-1.1, 4, 15), (MOST / 4, 1, 1)],
        [(math.nextafter(MOST, math.inf), 4, 0), (-1e6, 4, 0)],
    ),
    (
        testing.sr_zero_truncates, doubled,
        [(1.1, 4), (-1.1, 4), (1.0, 32)],
        [(math.nextafter(MOST, math.inf), 4), (-1e6, 4)],
    ),
    (testing.exact_zero_sign, upward, [(1.0,), (-0.0,), (MOST,)], [(math.inf,), (math.nan,)]),
]


@pytest.mark.parametrize("edge", EDGES, ids=lambda edge: edge[0].__name__)
def test_a_law_speaks_up_to_its_condition_and_no_further(edge: Any) -> None:
    law, spoil, inside, outside = edge
    for operands in [*inside, *outside]:
        law(Context(BINARY16), *operands)
    for operands in inside:
        with pytest.raises(AssertionError, match=r"is broken|are exact|raise no flags|is -0"):
            law(Broken.by(spoil), *operands)
    for operands in outside:
        law(Broken.by(spoil), *operands)


def test_two_sums_are_asked_where_nothing_overflows() -> None:
    for law in (testing.two_sum, testing.fast_two_sum):
        law(Context(BINARY16), MOST, MOST)
        law(Broken.by(doubled), MOST, MOST)
        for operands in ((1.0, 2.0**-20), (2.0**-20, 1.0), (-3.0, 2.0**-12)):
            law(Context(BINARY16), *operands)
            with pytest.raises(AssertionError, match="TwoSum is broken"):
                law(Broken.by(doubled), *operands)


@pytest.mark.parametrize("law", [testing.monotone, testing.sign_symmetric])
def test_stochastic_roundings_are_asked_for_neither_order_nor_symmetry(law: Any) -> None:
    operands = (0.1, 0.2)[: 2 if law is testing.monotone else 1]
    context = Broken.by(lambda v: -np.abs(v) - np.abs(v + 1))
    with pytest.raises(AssertionError, match="is broken"):
        law(context.replace(rounding=RNE), *operands)
    law(context.replace(rounding=MODES["SR_EQUAL"]), *operands)


def test_symmetry_exchanges_up_and_down() -> None:
    for mode in (RTP, RTN, RTZ, RNE):
        testing.sign_symmetric(Context(BINARY16, rounding=mode), 0.1)
        testing.sign_symmetric(Context(F143, rounding=mode), 1e-9)


def test_overflow_is_what_mode_and_policy_say() -> None:
    for fmt in (BINARY16, E4M3FN, E2M1FN, F143):
        # In the quick tier every mode, but not with the format without -0: more kernels.
        few = pick(fmt == F143, False, False)
        modes = [RNE, RTP, RTN, RTZ] if few else [m for m in MODES.values() if not m.stochastic]
        for mode in modes:
            for policy in ("infinity", "saturate", "nan"):
                allowed = {"infinity": fmt.has_infinity, "nan": fmt.has_nan}.get(policy, True)
                for real in (4 * fmt.max, -4 * fmt.max) if allowed else ():
                    testing.overflow_result(Context(fmt, rounding=mode, overflow=policy), real)


def test_the_numbers_of_a_broken_law_are_in_its_sentence() -> None:
    with pytest.raises(AssertionError) as error:
        testing.sterbenz(Broken.by(upward), 1.5, 1.0)
    for text in ("Sterbenz is broken in Context(binary16", "0x1.8000000000000p+0", "0x1.0000000"):
        assert text in str(error.value)


def test_laws_leave_the_context_as_it_is() -> None:
    context = Context(BINARY16, seed=3, traps=Flags.OVERFLOW)
    for law, _, inside, outside in EDGES:
        for operands in [*inside, *outside]:
            law(context, *operands)
    assert (context.flags, context.operation, context.traps) == (Flags.NONE, 0, Flags.OVERFLOW)


def test_values_of_small_formats_are_told_from_other_numbers() -> None:
    for fmt in SMALL:
        values = {float(v) for v in from_codes(np.arange(fmt.n_codes), fmt) if np.isfinite(v)}
        step = Fraction(fmt.smallest_subnormal) / 2
        for k in range(-70, 70):
            assert testing._is_value(k * step, fmt) == (float(k * step) in values)
        assert not testing._is_value(Fraction(2 * fmt.max), fmt)
        assert testing._is_value(Fraction(fmt.max), fmt)
