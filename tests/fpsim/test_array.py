"""Array: operators and numpy's protocols (**corners**), agreement with numpy (**differential**)."""

from __future__ import annotations

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
    up = fp.Context(fp.BINARY16, rounding="RTP").convert(x)
    assert np.rint(up).values.tolist() == [2.0, -2.0, 1.0]


def test_in_place_operators_keep_the_memory(x: fp.Array) -> None:
    memory = x.values
    x += 1.0
    x -= 0.5
    x *= 2.0
    x /= 4.0
    assert x.values is memory


def test_reflected_operators_keep_the_order(x: fp.Array) -> None:
    assert float(1.0 - HALF.array(0.25)) == 0.75
    assert float(1.0 / HALF.array(4.0)) == 0.25


@pytest.mark.parametrize("call", [lambda x: x % 2.0, lambda x: np.remainder(x, 2.0)])
def test_which_remainder_is_asked(call, x: fp.Array) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TypeError, match=r"ctx\.ieee_remainder\(x, y\) or ctx\.fmod"):
        call(x)


def test_what_is_not_offered_is_refused(x: fp.Array) -> None:
    with pytest.raises(TypeError, match=r"np\.hypot is not offered"):
        np.hypot(x, x)
    with pytest.raises(TypeError, match=r"np\.add with reduce is not offered"):
        np.add.reduce(x)
    with pytest.raises(TypeError, match=r"use \.values or \.to_numpy"):
        np.asarray(x)


def test_functions_take_numpys_arguments_or_name_those_they_do_not(x: fp.Array) -> None:
    total = HALF.zeros(())
    assert float(np.sum(a=x)) == float(np.sum(x, 0, None)) == float(x.sum())
    assert np.sum(x, out=total, keepdims=False) is total
    assert float(np.dot(x, b=x, out=None)) == float(HALF.dot(x, x))
    for call, named in (
        (lambda: np.sum(x, keepdims=True), "np.sum with keepdims"),
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
    assert x.nbytes == 6
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
        assert np.array_equal(y.values, half.convert(x).values)
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
