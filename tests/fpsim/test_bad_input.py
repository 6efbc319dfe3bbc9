"""What a user gets wrong: the sentence, nothing written, the generator not advanced (law)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fpsim as fp
from fpsim.context import Context
from fpsim.records.formats import BINARY16
from fpsim.records.units import MatrixUnit

#: Inputs that are no numbers of a binary format.
NOT_NUMBERS = {
    "object": np.array([1, 2], object),
    "complex": np.array([1j]),
    "strings": np.array(["1.0"]),
    "bytes": np.array([b"1"]),
    "longdouble": np.array([1.0], np.longdouble),
    "swapped bytes": np.array([1.0], ">f4"),
    "time": np.array([1], "m8[s]"),
    "none": None,
    "mixed": [1, "a"],
}

BINARY = ("add", "subtract", "multiply", "divide", "maximum", "fmin", "ieee_remainder", "fmod")
OPERANDS = {
    **dict.fromkeys(BINARY, 2), "fma": 3,
    **dict.fromkeys(("sqrt", "round_to_integral", "negative", "absolute", "array"), 1),
}


@pytest.fixture
def context() -> fp.Context:
    return fp.Context(fp.BINARY16, rounding=fp.SR(4), seed=1)


def refuse(
    context: fp.Context, kind: type[Exception], message: str, call: Callable[[], object]
) -> None:
    """The call raises that sentence; flags and generator stay as they were."""
    before = context.operation, context.flags
    with pytest.raises(kind, match=message):
        call()
    assert (context.operation, context.flags) == before


@pytest.mark.parametrize("values", NOT_NUMBERS.values(), ids=NOT_NUMBERS)
def test_what_is_no_number_is_refused(context: fp.Context, values: Any) -> None:
    x = context.zeros(2)
    refuse(context, TypeError, "give floats", lambda: context.array(values))
    refuse(context, TypeError, "give floats", lambda: fp.round_to(values, fp.BINARY16))
    refuse(context, TypeError, "give floats", lambda: fp.encode(values, fp.BINARY16))
    refuse(context, TypeError, r"convert with ctx\.array", lambda: x + values)
    refuse(context, TypeError, r"convert with ctx\.array", lambda: values + x)


@pytest.mark.parametrize("name", OPERANDS)
def test_an_out_that_cannot_take_the_result_is_refused(context: fp.Context, name: str) -> None:
    memory = np.arange(8, dtype=np.float32)
    x = context.wrap(memory[:4], copy=False)
    locked = np.zeros(4, np.float32)
    locked.flags.writeable = False
    operands = (x,) * OPERANDS[name]
    for out, kind, message in (
        (locked, ValueError, "out is read-only; give an array that can be written"),
        (memory[1:5], ValueError, "out overlaps an operand in part; give the operand itself"),
        (np.zeros(3, np.float32), ValueError, r"out has shape \(3,\), the result has shape \(4,\)"),
        (np.zeros(4), TypeError, "out has dtype float64; this result is held in float32"),
        ([0.0] * 4, TypeError, "out=list is not an ndarray"),
        (fp.Context(fp.BFLOAT16).zeros(4), TypeError, "out is bfloat16, this context computes"),
    ):
        call = getattr(context, name)
        refuse(context, kind, message, lambda call=call, out=out: call(*operands, out=out))
    np.testing.assert_array_equal(memory, np.arange(8))
    assert not locked.any()


@pytest.mark.parametrize("name", [n for n, k in OPERANDS.items() if k > 1])
def test_shapes_that_do_not_agree_are_refused(context: fp.Context, name: str) -> None:
    x, y, out = context.zeros((2, 4)), context.zeros(3), context.zeros((2, 4))
    operands = (x, y, x)[: OPERANDS[name]]
    message = r"operands have shapes \(2, 4\) and \(3,\).*, which do not broadcast"
    call = getattr(context, name)
    refuse(context, ValueError, message, lambda: call(*operands, out=out))
    refuse(context, ValueError, message, lambda: context.less(x, y))


@pytest.mark.parametrize("bits", [0, -1, 33, 1 << 40])
def test_numbers_of_random_bits_out_of_range_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match=f"bits={bits} is out of range; use 1 to 32"):
        fp.SR(bits)


@pytest.mark.parametrize(("fmt", "most"), [(fp.BINARY32, 27), (fp.Format.custom(9, 26), 25)])
def test_more_bits_than_the_format_can_use_are_refused(fmt: fp.Format, most: int) -> None:
    assert fp.Context(fmt, rounding=fp.SR(most)).core.settings.random_bits == most
    with pytest.raises(ValueError, match=rf"min\(32, 51 - precision\) = {most}"):
        fp.Context(fmt, rounding=fp.SR(most + 1))


@pytest.mark.parametrize("bits", [1.5, "4", True])
def test_what_is_no_number_of_bits_is_refused(bits: Any) -> None:
    with pytest.raises(TypeError, match="is not a number of bits"):
        fp.SR(bits)
    assert fp.SR(np.int64(4)) == fp.SR(4)


@pytest.mark.parametrize(
    ("random", "kind", "message"),
    [
        ([1, 2, 3], ValueError, r"random bits have shape \(3,\), the result has shape \(4,\)"),
        ([[1, 2, 3, 4]], ValueError, r"random bits have shape \(1, 4\)"),
        ([0, 0, 0, 16], ValueError, r"0 to 2\*\*4 - 1"),
        ([-1, 0, 0, 0], ValueError, r"0 to 2\*\*4 - 1"),
        ([0.5, 0, 0, 0], TypeError, "random bits have dtype float64; give integers"),
    ],
)
def test_unsuitable_random_bits_are_refused(
    random: Any, kind: type[Exception], message: str
) -> None:
    x, out = np.linspace(1, 2, 4, dtype=np.float32), np.zeros(4, np.float32)
    with pytest.raises(kind, match=message):
        fp.round_to(x, fp.BINARY16, fp.SR(4), random=random, out=out)
    assert not out.any()
    context = fp.Context(fp.BINARY16, rounding=fp.SR(4), bits=fp.Replay([random, [1, 2, 3, 4]]))
    y = context.wrap(np.ones(4, np.float32))
    refuse(context, kind, message, lambda: context.divide(y, 3.0, out=out))
    assert not out.any()


def test_random_bits_for_a_mode_that_takes_none_are_refused() -> None:
    with pytest.raises(ValueError, match="random= is for stochastic modes; rounding=RNE"):
        fp.round_to([1.5], fp.BINARY16, random=[0])


@pytest.mark.parametrize(
    "choice",
    [{"bits": fp.Philox(1)}, {"traps": fp.Flags.INEXACT}, {"count": True}, {"overflo": ""}],
)
def test_round_to_refuses_what_is_no_choice_of_it(choice: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        fp.round_to([0.1], fp.BINARY16, **choice)


@pytest.mark.parametrize("name", ["overflow", "tininess", "quiet_nan_raises"])
def test_a_choice_without_a_hash_has_the_usual_sentence(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name}=\['x'\] is not known; use one of"):
        fp.round_to([0.1], fp.BINARY16, **{name: ["x"]})


def test_what_is_no_flag_or_integer_type_is_refused(context: fp.Context) -> None:
    with pytest.raises(TypeError, match="traps='x' is not a Flags"):
        fp.Context(fp.BINARY16, traps="x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="flags=32 is not a Flags"):
        context.flags = 32  # type: ignore[assignment]
    x = context.zeros(2)
    for dtype in ("bool", "words", float):
        refuse(context, TypeError, "use int8, int16", lambda d=dtype: context.to_integers(x, d))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda c: c.arange(0, 10, None), "step=None is not a number"),
        (lambda c: c.core.raise_flags(np.array([1, 2])), r"flags=array\(\[1, 2\]\) is not a Flags"),
        (lambda c: c.core.raise_flags(10**30), "is not a Flags"),
        (lambda c: c.core.raise_flags(None), "flags=None is not a Flags"),
        (lambda c: c.array([1.0]).to(5), "target=5 is no format and no context"),
        (lambda c: c.constant("abc"), "value='abc' is not a number"),
        (lambda c: c.constant(None), "value=None is not a number"),
        (lambda c: MatrixUnit("U", "u", "abc", BINARY16, 4, 32), "inputs='abc' are no formats"),
        (lambda c: MatrixUnit("U", "u", (1, 2), BINARY16, 4, 32), "inputs=1 is no format"),
        (lambda c: MatrixUnit("U", "u", (BINARY16,), None, 4, 32), "partials=None is no format"),
        (lambda c: MatrixUnit("U", "u", (BINARY16,), BINARY16, 4, 32, accumulator=2.5),
         "accumulator=2.5 is no format"),
    ],
    ids=[str(n) for n in range(11)],
)
def test_wrong_kinds_are_named_before_anything_changes(call, sentence):
    context = Context(BINARY16)
    with pytest.raises(TypeError, match=sentence):
        call(context)
    assert context.flags == 0


def test_a_block_beyond_any_row_is_one_block():
    context = Context(BINARY16)
    x = context.array([1.0, 2.0**-11, 2.0**-11])
    one = context.sum(x, order="blocked", block=10**30)
    assert one.codes() == context.sum(x, order="sequential").codes()
