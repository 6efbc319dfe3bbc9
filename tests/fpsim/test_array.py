"""Array: operators and numpy's protocols (**corners**), agreement with numpy (**differential**)."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fpsim as fp

HALF = fp.Context(fp.BINARY16)


@pytest.fixture
def x() -> fp.Array:
    return HALF.array([1.5, -2.25, 0.1])


@pytest.mark.parametrize(
    "ufunc", [np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.fmax, np.fmin]
)
def test_binary_ufuncs_are_the_contexts_operations(ufunc: np.ufunc, x: fp.Array) -> None:
    y = HALF.array([0.3, 4.0, -7.0])
    expected = ufunc(x.to_numpy(), y.to_numpy())
    assert np.array_equal(ufunc(x, y).to_numpy(), expected)


@pytest.mark.parametrize("ufunc", [np.sqrt, np.negative, np.absolute])
def test_unary_ufuncs_are_the_contexts_operations(ufunc: np.ufunc, x: fp.Array) -> None:
    y = abs(x)
    assert np.array_equal(ufunc(y).to_numpy(), ufunc(y.to_numpy()))


@pytest.mark.parametrize(
    "relation", [np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal]
)
def test_relations_give_truth_values(relation: np.ufunc, x: fp.Array) -> None:
    assert np.array_equal(relation(x, 0.1), relation(x.to_numpy(), np.float16(0.1)))


def test_ufuncs_take_out(x: fp.Array) -> None:
    out = HALF.zeros(3)
    assert np.add(x, x, out=out) is out
    assert np.array_equal(out.values, 2 * x.values)
    memory = np.zeros(3, np.float32)
    assert np.subtract(x, x, out=memory) is memory


def test_rint_rounds_as_the_context_does(x: fp.Array) -> None:
    assert np.rint(x).values.tolist() == [2.0, -2.0, 0.0]
    up = fp.Context(fp.BINARY16, rounding="RTP").array(x)
    assert np.rint(up).values.tolist() == [2.0, -2.0, 1.0]


def test_in_place_operators_keep_the_memory(x: fp.Array) -> None:
    memory = x.carrier
    x += 1.0
    x -= 0.5
    x *= 2.0
    x /= 4.0
    assert x.carrier is memory


def test_reflected_operators_keep_the_order(x: fp.Array) -> None:
    assert float(1.0 - HALF.array(0.25)) == 0.75
    assert float(1.0 / HALF.array(4.0)) == 0.25


def test_what_is_not_offered_is_refused(x: fp.Array) -> None:
    with pytest.raises(TypeError, match=r"np\.hypot is not offered"):
        np.hypot(x, x)
    with pytest.raises(TypeError, match=r"np\.add with reduce is not offered"):
        np.add.reduce(x)


def test_functions_take_numpys_arguments_or_name_those_they_do_not(x: fp.Array) -> None:
    total = HALF.zeros(())
    assert float(np.sum(a=x)) == float(np.sum(x, 0, None)) == float(x.sum())
    assert np.sum(x, out=total, keepdims=False) is total
    assert np.sum(x, keepdims=True).shape == (1,)
    assert float(np.dot(x, b=x, out=None)) == float(HALF.dot(x, x))
    for call, named in (
        (lambda: np.sum(x, initial=1.0), "np.sum with initial"),
        (lambda: np.mean(x, None, np.float32), "np.mean with dtype"),
        (lambda: np.dot(x, x, out=total), "np.dot with out"),
        (lambda: np.equal(x, x, out=np.zeros(3, bool)), "np.equal with out"),
        (lambda: np.isnan(x, out=HALF.zeros(3)), "np.isnan with out"),
    ):
        with pytest.raises(TypeError, match=f"^{named} is not offered for Array"):
            call()


def test_an_output_alone_makes_no_operands(x: fp.Array) -> None:
    plain = np.zeros(3, np.float32)
    for call in (
        lambda: np.add(plain, plain, out=x),
        lambda: np.sum(plain, out=HALF.zeros(())),
        lambda: np.isnan(plain, out=x),
    ):
        with pytest.raises(TypeError, match="Array"):
            call()


def test_views_share_memory_and_assignment_rounds_scalars(x: fp.Array) -> None:
    x[:2] = 0.1
    assert x.values.tolist() == [np.float32(np.float16(0.1))] * 3
    assert x.reshape(3, 1).T.shape == (1, 3)
    assert len(x) == 3


def test_faces_of_the_same_values(x: fp.Array) -> None:
    assert x.to_numpy().dtype == np.float16
    assert x.codes().tolist() == x.to_numpy().view(np.uint16).tolist()
    assert x.storage_bytes == x.to_numpy().nbytes == 6
    assert (x.dtype, x.itemsize, x.nbytes) == (x.values.dtype, 4, x.values.nbytes)
    assert repr(x.to(fp.BFLOAT16)).endswith("bfloat16)")


@pytest.mark.source("S4-03")
def test_conversions_round_in_the_target(x: fp.Array) -> None:
    wide = fp.Context(fp.BINARY32).array([1 + 2.0**-11 + 2.0**-20])
    assert float(wide.to(fp.BINARY16)[0]) == 1 + 2.0**-10
    assert float(wide.to(fp.Context(fp.BINARY16, rounding="RTZ"))[0]) == 1.0


def test_a_conversion_is_an_operation_of_the_context_it_starts_from() -> None:
    context = fp.Context(fp.BINARY32, rounding=fp.SR(8), seed=3, count=True)
    half = fp.Context(fp.BINARY16, rounding=fp.SR(8), seed=3)
    x = context.wrap(np.full(512, 1.0 + 2.0**-11, np.float32))
    for k in range(1, 4):
        y = x.to(fp.BINARY16)
        assert np.array_equal(y.values, half.array(x).values)
        assert context.operation == y.context.operation == k
    assert context.flags == y.context.flags == fp.Flags.INEXACT
    assert context.counts is not None
    assert context.counts["", "convert"]["INEXACT"] == 3 * 512
    context.traps = fp.Flags.INEXACT
    context.clear_flags()
    with pytest.raises(fp.FloatingPointTrap):
        x.to(fp.BINARY16)
    assert (context.flags, context.operation) == (fp.Flags.INEXACT, 3)


@pytest.mark.parametrize("question", [np.isnan, np.isfinite, np.isinf, np.signbit])
def test_questions_go_to_the_values(question: np.ufunc, x: fp.Array) -> None:
    assert np.array_equal(question(x), question(x.values))


# Numbers, memory and settings -----------------------------------------------------------------


def test_values_cannot_be_written_and_show_what_the_array_holds(x: fp.Array) -> None:
    narrow = fp.Context(fp.F143).array([1.0, 2.0])
    with pytest.raises(ValueError, match="read-only"):
        narrow.values[0] = 0.3
    narrow[0] = 0.3
    assert narrow.values.tolist() == [0.3125, 2.0]
    assert narrow.values is narrow.values
    assert np.shares_memory(narrow.values, narrow.carrier)
    assert narrow.carrier.flags.writeable


def test_wrap_copies_unless_it_is_told_not_to() -> None:
    memory = np.ones(3, np.float32)
    copied, same = HALF.wrap(memory), HALF.wrap(memory, copy=False)
    memory[:] = 2.0
    assert (copied.values.tolist(), same.values.tolist()) == ([1.0] * 3, [2.0] * 3)


@pytest.mark.parametrize(
    "take",
    [
        HALF.array, HALF.wrap, HALF.unpack, lambda a: fp.round_to(a, fp.BINARY16),
        lambda a: fp.encode(a, fp.BINARY16), lambda a: HALF.zeros(2) + a,
    ],
)
def test_masked_arrays_are_refused(take) -> None:  # type: ignore[no-untyped-def]
    masked = np.ma.masked_array(np.float32([1.0, 2.0]), [False, True])
    with pytest.raises(TypeError, match=r"masked array, whose mask|convert with ctx\.array"):
        take(masked)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, c: x + c, lambda x, c: c - x, lambda x, c: x * c, lambda x, c: c / x,
        lambda x, c: np.maximum(x, c), lambda x, c: np.fmin(x, c), lambda x, c: x.clip(0, c),
        lambda x, c: x.__setitem__(0, c), lambda x, c: x.__iadd__(c), lambda x, c: HALF.sqrt(c),
        lambda x, c: HALF.full(2, c), lambda x, c: np.full_like(x, c),
        lambda x, c: np.where([True, False, True], x, c),
        lambda x, c: np.pad(x, 1, constant_values=c),
    ],
)
@pytest.mark.parametrize("number", [65504.1, 1e6, -65505, 10**400])
def test_numbers_beyond_the_format_are_no_constants(call, number, x: fp.Array) -> None:  # type: ignore[no-untyped-def]
    before = x.values.tolist()
    with pytest.raises(
        (ValueError, TypeError), match=r"is beyond binary16 \(largest 65504\); round"
    ):
        call(x, number)
    assert x.values.tolist() == before


def test_the_sentence_of_such_a_number_can_be_followed() -> None:
    sentence = "1e+06 is beyond binary16 (largest 65504); round it yourself: ctx.array(1e+06)"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        HALF.array(1.0) * 1e6
    with pytest.raises(ValueError, match=r"^65504\.001 is beyond"):
        HALF.array(1.0) * 65504.001


def test_numbers_within_infinities_and_nan_are_constants(x: fp.Array) -> None:
    assert (x * float("inf")).values.tolist() == [np.inf, -np.inf, np.inf]
    assert np.isnan((x + float("nan")).values).all()
    assert float(HALF.array(1.0) * 65504) == 65504.0
    assert (x < 1e6).all()
    assert (x > -(10**400)).all()
    assert not (x == 1e300).any()


def test_a_constant_is_made_under_the_settings_in_force() -> None:
    context = fp.Context(fp.BINARY16)
    x, large = context.array([1.0]), 1e5
    assert (x < large).all()
    keeping, saturating = context.core.settings, context.core.settings.replace(overflow="saturate")
    context.core.settings = saturating
    assert context.constant(large).item() == 65504.0
    assert (context.array([65504.0]) == large).all()
    context.core.settings = keeping
    assert context.constant(large).item() == np.inf
    tiny = 2.0**-24
    assert context.constant(tiny).item() == tiny
    context.core.settings = keeping.replace(subnormals="flush_results")
    assert context.constant(tiny).item() == 0.0


def test_a_constant_is_no_door_into_the_ones_that_are_kept() -> None:
    context = fp.Context(fp.BINARY16)
    one = context.constant(1.0)
    one += 1.0
    one.carrier[...] = 7.0
    assert float(context.array(1.0) + 1.0) == 2.0


OPERATORS = [
    lambda x, y: x + y, lambda x, y: x - y, lambda x, y: x * y, lambda x, y: x / y,
    lambda x, y: x @ y, lambda x, y: x == y, lambda x, y: x != y, lambda x, y: x < y,
    lambda x, y: x <= y, lambda x, y: x > y, lambda x, y: x >= y, lambda x, y: x.__iadd__(y),
    lambda x, y: x.__isub__(y), lambda x, y: x.__imul__(y), lambda x, y: x.__itruediv__(y), np.add,
    np.maximum, np.less, np.matmul, np.dot, lambda x, y: np.add(x, x, out=y),
    lambda x, y: np.concatenate([x, y]), lambda x, y: np.where([True, False, True], x, y),
]


@pytest.mark.parametrize("operator", OPERATORS)
def test_arrays_of_different_settings_do_not_mix(operator, x: fp.Array) -> None:  # type: ignore[no-untyped-def]
    y = x.to(fp.Context(fp.BINARY16, rounding="RTZ"))
    before = x.values.tolist()
    with pytest.raises(TypeError) as error:
        operator(x, y)
    assert "Context(binary16)" in str(error.value)
    assert "Context(binary16, rounding=RTZ)" in str(error.value)
    assert "y.to(x.context)" in str(error.value)
    assert x.values.tolist() == before
    operator(x.copy(), y.to(HALF))


@pytest.mark.parametrize("operator", OPERATORS)
def test_seed_traps_counts_and_clock_are_no_settings(operator, x: fp.Array) -> None:  # type: ignore[no-untyped-def]
    other = fp.Context(fp.BINARY16, seed=5, count=True, traps=fp.Flags.DIVBYZERO)
    operator(x, other.array([1.0, 2.0, 3.0]))


def test_an_operation_that_names_its_context_takes_both(x: fp.Array) -> None:
    down = fp.Context(fp.BINARY16, rounding="RTZ")
    y = down.array([0.1, 0.2, 0.3])
    assert HALF.add(x, y).context is HALF
    assert down.add(x, y).context is down
    y[:] = x
    assert y.values.tolist() == x.values.tolist()
