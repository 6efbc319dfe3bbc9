"""Which operands a Context takes: constants, mixed formats, outputs (corners, refusals)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from tests.tiers import pick, reaches

HALF, BRAIN = fp.Context(fp.BINARY16), fp.Context(fp.BFLOAT16)


@pytest.mark.parametrize("value", [0.0, -0.0, 1, True, 0.1, 65504, -1e-9, float("inf")])
def test_a_number_is_a_constant_to_nearest_without_flags_or_bits(value):
    """Asked for twice: the second one may be kept from the first."""
    context = fp.Context(fp.BINARY16, rounding=fp.SR(3))
    wanted = fp.Context(fp.BINARY16).array(value).codes()
    for _ in range(2):
        (carrier,) = context.core.carriers((value,))
        assert fp.Array(carrier, context).codes() == wanted
    assert (context.flags, context.operation) == (fp.Flags.NONE, 0)


def test_constants_that_compare_equal_keep_their_bits():
    context = fp.Context(fp.BINARY16)
    one = context.array(1.0)
    for _ in range(2):
        zeros = [context.multiply(one, z).codes().item() for z in (0.0, -0.0, 0, False)]
        assert zeros == [0, 0x8000, 0, 0]
        nans = [
            context.add(one, n).codes().item() for n in (float("nan"), np.float64("nan").item())
        ]
        assert nans == [0x7E00] * 2


@pytest.mark.parametrize("value", [1e9, -1e9, 2**70])
def test_a_number_beyond_the_format_is_no_constant(value):
    context = fp.Context(fp.BINARY16)
    with pytest.raises(ValueError, match="beyond binary16"):
        context.add(context.array(1.0), value)
    assert context.flags == fp.Flags.NONE


def test_many_constants_are_all_right():
    context, zero = fp.Context(fp.BINARY16), fp.Context(fp.BINARY16).array(0.0)
    for _ in range(2):
        assert [float(context.add(zero, k)) for k in range(600)] == list(map(float, range(600)))


@pytest.mark.parametrize(
    ("operands", "sentence"),
    [
        ((HALF.array(1), BRAIN.array(1)), "x is binary16 and y is bfloat16"),
        ((BRAIN.array(1), HALF.array(1)), "x is bfloat16 and y is binary16"),
        ((BRAIN.array(1), 1.0), "the context is binary16 and x is bfloat16"),
        ((HALF.array(1), HALF.array(1), BRAIN.array(1)), "x is binary16 and z is bfloat16"),
    ],
)
def test_formats_are_not_mixed_and_the_sentence_names_them(operands, sentence):
    call = HALF.fma if len(operands) == 3 else HALF.add
    with pytest.raises(TypeError, match=f"{sentence}; fpsim never promotes") as caught:
        call(*operands)
    name = sentence.rpartition(" and ")[2][0] if "x is bf" not in sentence else "x"
    assert f"{name}.to(BINARY16)" in str(caught.value)


def test_an_array_of_another_context_of_the_format_is_taken():
    assert float(HALF.add(fp.Context(fp.BINARY16, rounding="RTZ").array(1), 1)) == 2.0


@pytest.mark.parametrize("other", [np.float32(1.1), np.ones(2, object), "1", None, 1j, [1.0]])
def test_what_is_no_array_of_the_format_is_refused(other):
    with pytest.raises(TypeError, match=r"convert with ctx\.array"):
        HALF.add(HALF.array(1.0), other)


@pytest.mark.parametrize("traps", [fp.Flags.NONE, fp.Flags.INVALID])
@pytest.mark.parametrize("name", ["add", "maximum"])
def test_an_output_is_checked_before_anything_changes(name, traps):
    context = fp.Context(fp.BINARY16, rounding=fp.SR(3), traps=traps)
    x = context.array([1 / 3, 2 / 3])
    context.clear_flags()
    number = context.operation
    wrong = [
        (BRAIN.zeros(2), TypeError, "out is bfloat16"), (np.zeros(2), TypeError, "dtype"),
        (context.zeros(3), ValueError, "shape"), ([0.0, 0.0], TypeError, "not an ndarray"),
    ]
    for out, kind, message in wrong:
        with pytest.raises(kind, match=message):
            getattr(context, name)(x, 1 / 3, out=out)
    assert (context.flags, context.operation) == (fp.Flags.NONE, number)


@pytest.mark.parametrize("name", ["add", "fmin"])
def test_an_output_is_what_comes_back(name):
    x = HALF.array([1.0, 5.0])
    wanted = getattr(HALF, name)(x, 2.0).codes().tolist()
    out, memory = HALF.zeros(2), np.zeros(2, np.float32)
    assert getattr(HALF, name)(x, 2.0, out=out) is out
    assert out.codes().tolist() == wanted
    assert getattr(HALF, name)(x, 2.0, out=memory).codes().tolist() == wanted
    assert memory.tolist() == out.values.tolist()


#: In the quick tier the format without -0, whose kernels are its own, to nearest alone.
COUNTED = [
    (fmt, rounding)
    for fmt in (fp.F143, fp.BINARY16)
    for rounding in (fp.RNE, fp.SR(8), fp.SR(13))
    if reaches("full") or fmt == fp.BINARY16 or rounding == fp.RNE
]


COUNTED_VERBS = ("add", "subtract", "multiply", "divide", "sqrt", "exp", "array")
WITHOUT_MINUS_ZERO = pick(("add", "multiply", "array"), COUNTED_VERBS, COUNTED_VERBS)


@pytest.mark.parametrize(("fmt", "rounding"), COUNTED, ids=str)
def test_counting_the_flags_of_elements_raises_no_others(fmt, rounding):
    values = fp.Context(fmt).array(np.linspace(-float(fmt.max) / 3, float(fmt.max) / 3, 77))
    plain, counting = (fp.Context(fmt, rounding=rounding, count=c) for c in (False, True))
    for verb in COUNTED_VERBS if fmt.has_negative_zero else WITHOUT_MINUS_ZERO:
        raised = []
        for context in (plain, counting):
            context.clear_flags()
            operands = [values] * (2 if verb in ("add", "subtract", "multiply", "divide") else 1)
            getattr(context, verb)(*operands)
            raised.append(context.flags)
        assert raised[0] == raised[1], verb
