"""Context and its state: corners of the interface, error sentences.

Kinds: **corners** (shapes, scalars, outputs), **law** (layout of memory, chunks and threads never
show in a result).
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import fpsim as fp

HALF = fp.BINARY16


def half(**choices: object) -> fp.Context:
    return fp.Context(HALF, **choices)  # type: ignore[arg-type]


# Scalars and operands -------------------------------------------------------------------------


def test_python_numbers_are_constants_without_flags_or_draws() -> None:
    context = half(rounding=fp.SR(), seed=1)
    x = context.array([1.0])
    context.clear_flags()
    number = context.operation
    assert (x * 0.1).values.tolist() != []
    assert context.operation == number + 1
    assert context.constant(0.1).values == np.float32(np.float16(0.1))


def test_zeros_of_both_signs_are_different_constants() -> None:
    context = half()
    x = context.array([-0.0])
    assert not np.signbit((x + 0.0).values[0])
    assert np.signbit((x + -0.0).values[0])


def test_every_nan_is_the_same_constant() -> None:
    context = half()
    assert context.core.constant(float("nan")) is context.core.constant(float("nan"))


@pytest.mark.source("S4-04")
def test_formats_never_mix() -> None:
    x, y = fp.Context(fp.BINARY32).array([1.0]), half().array([1.0])
    with pytest.raises(TypeError, match="x is binary32 and y is binary16; fpsim never promotes"):
        _ = x + y
    with pytest.raises(TypeError, match=r"Convert one: y\.to\(BINARY32\)\."):
        _ = x + y


@pytest.mark.parametrize(
    "other", [np.float32(0.1), np.full(2, 0.1), np.longdouble(1), 1j, "1", None]
)
def test_other_operands_are_refused(other: object) -> None:
    with pytest.raises(TypeError, match=r"convert with ctx\.array\(y\)"):
        _ = half().array([1.0]) + other


@pytest.mark.parametrize(
    "values",
    [np.ones(2, complex), np.ones(2, object), np.array(["1"]), np.ones(2, np.longdouble), [None]],
)
def test_unsuitable_values_are_refused_and_nothing_is_drawn(values: object) -> None:
    context = half(rounding=fp.SR(), seed=3)
    with pytest.raises(TypeError, match="values have dtype"):
        context.array(values)
    assert context.operation == 0
    assert context.flags == fp.Flags.NONE


def test_large_integers_are_rounded_once() -> None:
    context = fp.Context(fp.BINARY32)
    assert float(context.array(2**24 + 1)) == 2.0**24
    assert float(context.array([2**63 + 2**39 + 1])[0]) == 2.0**63 + 2.0**40
    assert float(context.array(10**30)) == float(np.float32(10.0**30))


def test_integers_among_floats_are_rounded_once() -> None:
    long = 2**63 + 2**39 + 1
    for values in ([long, -1], [long, 0.5], [[np.int64(1), long]]):
        assert 2.0**63 + 2.0**40 in fp.Context(fp.BINARY32).array(values).values


@pytest.mark.parametrize("number", [2**53 + 2**10, 2**54 - 2, 2**63 + 2**10 + 2])
def test_integers_keep_every_digit_that_binary64_has(number: int) -> None:
    # SR sees 27 digits of the tail: one lost digit would show in what these random bits make of it.
    for r in (2**27 - 200, 2**27 - 128, 2**27 - 127, 2**27 - 1):

        def rounded(x: object, r: int = r) -> float:
            bits = fp.Replay([np.array([r])])
            return float(fp.Context(fp.BINARY32, rounding=fp.SR(27), bits=bits).array(x)[0])

        tail = number % 2 ** (number.bit_length() - 24) << 27 >> number.bit_length() - 24
        cut = number >> number.bit_length() - 24
        expected = (cut + (tail + r >= 2**27)) * 2.0 ** (number.bit_length() - 24)
        assert rounded(np.array([number], np.uint64)) == rounded([number]) == expected


def test_the_reference_takes_values_of_any_context() -> None:
    choices = {"subnormals": "flush_both", "overflow": "saturate", "count": True}
    choices |= {"rounding": fp.SR(3), "traps": fp.Flags.INEXACT}
    x = half(**choices).array([1.5, -(2.0**-14), 65504.0])
    wide = x.to(fp.BINARY64)
    assert (wide.format, wide.values.tolist()) == (fp.BINARY64, x.values.tolist())
    assert (wide + wide).values.dtype == np.float64


def test_the_reference_takes_numbers_to_nearest() -> None:
    reference = fp.Context(fp.BINARY64)
    assert float(reference.array(2**53 + 1)) == 2.0**53
    assert reference.array(np.array([2**53 + 1, 2**53 + 3])).values.tolist() == [
        2.0**53,
        2.0**53 + 4,
    ]
    assert float(reference.array([2**63 + 2**10 + 1, 0])[0]) == 2.0**63 + 2.0**11
    assert float(reference.array(1.0) * (2**53 + 1)) == 2.0**53
    for text in ("0.1", "1e-305", "1e309", "-1e309", "4e-324", "1e-330"):
        assert float(reference.decimal(text)) == float(text)


@pytest.mark.parametrize("text", ["-0", "0.0", "-0e5", "inf", "-Infinity", "nan"])
def test_decimal_strings_have_signed_zeros_and_infinities(text: str) -> None:
    result = float(half().decimal(text))
    assert math.isnan(result) if text == "nan" else repr(result) == repr(float(text))


@pytest.mark.parametrize("text", ["1/0", "", "0x10", "1,5", ["1", "zwei"]])
def test_what_is_no_number_is_named(text: str | list[str]) -> None:
    with pytest.raises(ValueError, match="is no number; give digits as in"):
        half().decimal(text)
    with pytest.raises(TypeError, match="is no string; give digits"):
        half().decimal([0.5])


def test_decimal_strings_are_rounded_once() -> None:
    # Between the tie and the tie plus 2**-60: by way of binary64 it would round down.
    text = "1.00048828125000000086736173798840354720596224069595336914062500"
    assert float(half().decimal(text)) == 1 + 2.0**-10


# Outputs --------------------------------------------------------------------------------------


def test_out_takes_the_result_in_place_and_elsewhere() -> None:
    context = half()
    x = context.array(np.arange(100.0))
    out = context.zeros(100)
    assert context.add(x, x, out=out) is out
    x += x
    assert np.array_equal(x.values, out.values)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.zeros(4, np.float64), "dtype float64"),
        (np.zeros(5, np.float32), r"shape \(5,\)"),
        ([0.0] * 4, "is not an ndarray"),
    ],
)
def test_an_unsuitable_out_is_refused(out: object, message: str) -> None:
    context = half(rounding=fp.SR())
    x = context.zeros(4)
    with pytest.raises((TypeError, ValueError), match=message):
        context.add(x, 1.0, out=out)  # type: ignore[arg-type]
    assert context.operation == 0


def test_a_read_only_or_overlapping_out_is_refused() -> None:
    context = half()
    locked = np.zeros(4, np.float32)
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        context.add(context.zeros(4), 1.0, out=locked)
    memory = context.zeros(5)
    with pytest.raises(ValueError, match="overlaps"):
        context.add(memory[:4], 1.0, out=memory[1:])
    assert not memory.values.any()


@pytest.mark.parametrize(
    ("whole", "part"),
    [((4, 8), np.s_[:, :1]), ((4, 8), np.s_[:1]), ((8,), np.s_[:1]), ((1, 8), np.s_[:, :1])],
)
def test_a_broadcast_operand_inside_out_is_refused(whole: tuple[int, ...], part: object) -> None:
    x = half().array(np.arange(1.0, 1 + np.prod(whole)).reshape(whole))
    before = x.values.copy()
    with pytest.raises(ValueError, match="overlaps"):
        x -= x[part]
    assert np.array_equal(x.values, before)


# Random bits ----------------------------------------------------------------------------------


def test_only_published_stochastic_operations_are_numbered() -> None:
    context = half(rounding=fp.SR(), seed=9)
    x = context.array([1.0, 2.0])
    assert context.operation == 1
    _ = x < 2.0, -x, abs(x)
    assert context.operation == 1
    _ = x / 3.0
    assert context.operation == 2


def test_another_format_keeps_every_choice_and_shares_what_operations_leave() -> None:
    half = fp.Context(
        fp.BINARY16, rounding=fp.SR(7), subnormals="flush_both", tininess="before", seed=3,
        traps=fp.Flags.INVALID, count=True,
    )
    single = half.in_format(fp.BFLOAT16)
    assert single.core.settings.choices() == half.core.settings.choices() | {"format": fp.BFLOAT16}
    assert (single.traps, single.core.seed) == (half.traps, half.core.seed)
    single.array([0.1])
    assert (half.flags, half.operation) == (fp.Flags.INEXACT, 1)
    assert half.counts is single.counts
    assert half.in_format(fp.BFLOAT16).core.settings is single.core.settings


def test_children_are_independent_and_reproducible() -> None:
    parent = half(rounding=fp.SR(), seed=11)
    x = np.linspace(1, 2, 1000) + 1e-4
    first, again, other = (parent.spawn(k).array(x).values for k in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_replay_is_checked() -> None:
    def context(bits: object) -> fp.Context:
        return half(rounding=fp.SR(bits=3), bits=fp.Replay([bits]))

    exact = context([7, 0]).array([1.0, 1.0])
    assert exact.values.tolist() == [1.0, 1.0]
    for bits, message in (([1], "shape"), ([8, 0], "must lie in"), ([0.5, 0.5], "dtype")):
        drawn = context(bits)
        with pytest.raises((TypeError, ValueError), match=message):
            drawn.array([1.0, 1.1])
        assert drawn.operation == 0


def test_the_device_generator_owns_sixteen_bits() -> None:
    with pytest.raises(ValueError, match="fewer"):
        half(rounding=fp.SR(bits=17), bits=fp.Xoroshiro128aox(1)).array([1.1])


@pytest.mark.parametrize("bits", [0, 33, -1])
def test_impossible_numbers_of_bits_are_refused(bits: int) -> None:
    with pytest.raises(ValueError, match="1 to 32"):
        fp.SR(bits=bits)


def test_the_limit_of_bits_is_in_the_sentence() -> None:
    with pytest.raises(ValueError, match=r"min\(32, 51 - precision\) = 27"):
        fp.Context(fp.BINARY32, rounding=fp.SR(bits=28))


# Memory layout --------------------------------------------------------------------------------


@pytest.mark.parametrize("rounding", [fp.RNE, fp.RTN, fp.SR(bits=5), fp.SR(bits=20)])
@pytest.mark.parametrize("n", [1, 15, 16, 17, 127, 129, 1023, 1025, 5000])
def test_layout_never_shows_in_the_result(rounding: fp.Rounding, n: int) -> None:
    values = np.random.default_rng(n).standard_normal(n)
    values[:: n // 7 + 1] = np.inf

    def result(x: np.ndarray) -> tuple[list[int], fp.Flags]:
        context = half(rounding=rounding, seed=4)
        return context.array(x).values.view(np.uint32).tolist(), context.flags

    plain = result(values)
    spaced = np.zeros((n, 3))
    spaced[:, 1] = values
    locked = values.copy()
    locked.flags.writeable = False
    assert result(spaced[:, 1]) == plain
    assert result(locked) == plain
    assert result(values[::-1][::-1]) == plain
    if n > 200:
        parts = [values[:130], values[130:]]
        complete = half(rounding=rounding, seed=4)
        assert complete.array(np.concatenate(parts)).values.view(np.uint32).tolist() == plain[0]


@pytest.mark.parametrize("fmt", [HALF, fp.F143, fp.BINARY64])
@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("negative", 1), ("absolute", 1), ("sqrt", 1), ("maximum", 2), ("minimum", 2), ("fmax", 2),
        ("fmin", 2), ("add", 2), ("ieee_remainder", 2), ("fmod", 2),
    ],
)
@pytest.mark.parametrize("value", [2.0, float("nan")])
def test_a_number_without_dimensions_stays_one(
    fmt: fp.Format, name: str, n: int, value: float
) -> None:
    context = fp.Context(fmt)
    x, out = context.array(value), context.zeros(())
    result = getattr(context, name)(*[x] * n, out=out)
    assert result is out
    assert getattr(context, name)(*[x] * n).shape == ()


def test_empty_arrays_have_no_flags() -> None:
    context = half()
    assert (context.zeros((0, 3)) + 1.0).shape == (0, 3)
    assert context.flags == fp.Flags.NONE


def test_broadcasting_follows_numpy() -> None:
    context = half()
    x, y = context.array(np.arange(3.0)), context.array([[1.0], [2.0]])
    assert np.array_equal((x + y).values, x.values + y.values)
    assert np.array_equal((y - x).values, y.values - x.values)
    with pytest.raises(ValueError, match="broadcast"):
        _ = x + context.zeros(2)


# Choices --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"rounding": "nearest"}, "rounding='nearest' is not a Rounding; use one of RNE"),
        ({"overflow": "wrap"}, "overflow='wrap' is not known; use one of infinity"),
        ({"subnormals": "flush"}, "use one of keep, flush_results, flush_both"),
        ({"seed": -1}, r"0 to 2\*\*64 - 1"),
    ],
)
def test_unknown_choices_are_named(choice: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        half(**choice)


def test_a_format_offers_only_what_it_can_hold() -> None:
    with pytest.raises(ValueError, match="overflow='infinity' is not in e4m3fn"):
        fp.Context(fp.E4M3FN, overflow="infinity")
    with pytest.raises(TypeError, match="scale format"):
        fp.Context(fp.E8M0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="binary64 computes natively"):
        fp.Context(fp.BINARY64, rounding="RTZ")


def test_binary64_is_the_processors_own_arithmetic() -> None:
    context = fp.Context(fp.BINARY64)
    x = context.array([0.1, 1e308])
    assert (x * 10.0).values.tolist() == [1.0, np.inf]
    assert context.flags == fp.Flags.NONE
    with pytest.raises(TypeError, match="fma is not offered in binary64"):
        context.fma(x, x, x)
    assert [float(r(x)) for r in (context.sum, context.mean)] == [1e308, 5e307]
    assert float(context.dot(x, x)) == np.inf


def test_habits_of_a_format_do_not_follow_to_another() -> None:
    context = half().replace(format=fp.E4M3FN)
    assert context.core.settings.overflow == "nan"
    assert half(overflow="saturate").replace(format=fp.E4M3FN).core.settings.overflow == "saturate"
    with pytest.raises(ValueError, match="'infinity' is not in e4m3fn"):
        half(overflow="infinity").replace(format=fp.E4M3FN)


@pytest.mark.parametrize("start", [fp.BINARY16, fp.BINARY64, fp.E4M3FN, fp.F143, fp.E2M1FN])
@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.E4M3FN, fp.F143, fp.E2M1FN])
@pytest.mark.parametrize("choice", [{}, {"overflow": "saturate"}, {"infinite_input": "saturate"}])
def test_choices_made_later_are_those_made_at_once(
    start: fp.Format, fmt: fp.Format, choice: dict[str, str]
) -> None:
    wanted = fp.Context(fmt, **choice).core.settings  # type: ignore[arg-type]
    assert fp.Context(start).replace(format=fmt, **choice).core.settings == wanted
    assert fp.Context(start).replace(format=fmt).replace(**choice).core.settings == wanted
    if start != fp.BINARY64:
        assert fp.Context(start, **choice).replace(format=fmt).core.settings == wanted  # type: ignore[arg-type]


def test_flushed_operands_are_zeros_to_integers_too() -> None:
    context = half(subnormals="flush_both")
    x = context.wrap(np.float32([2.0**-20, 1.0]))
    assert context.to_integers(x, np.int32).tolist() == [0, 1]
    assert context.flags == fp.Flags.NONE


def test_a_context_shows_what_users_use() -> None:
    """What operations need of each other is behind `core`; everything shown has a sentence."""
    plumbing = {
        "armed", "carriers", "checked_target", "clock", "compare", "dump", "exact", "raise_flags",
        "rounded", "share", "source", "watched", "wrapped",
    }
    shown = {name for name in dir(fp.Context) if not name.startswith("_")}
    assert not shown & plumbing
    assert all(hasattr(fp.Context(fp.BINARY16).core, name) for name in plumbing)
    assert len(shown) <= 80
    undocumented = {name for name in shown if not getattr(fp.Context, name).__doc__}
    assert undocumented <= {"format", "rounding"}


def test_names_that_moved_lead_on_for_one_version():
    context = fp.Context(fp.BINARY16, seed=7)
    assert context.settings is context.core.settings
    assert context.seed == context.core.seed == 7
    assert context.convert([0.1]).tolist() == context.array([0.1]).tolist()
    assert not {"settings", "seed", "convert"} & set(dir(context))
    with pytest.raises(AttributeError, match="'Context' object has no attribute 'sums'"):
        _ = context.sums


def test_a_conversion_takes_memory_and_arrays_of_other_formats():
    half, single = fp.Context(fp.BINARY16), fp.Context(fp.BINARY32)
    memory = half.zeros(2)
    assert half.array(single.array([0.1, 65536.0]), out=memory) is memory
    assert half.flags == fp.Flags.INEXACT | fp.Flags.OVERFLOW
    assert single.array([0.5]).to(half).context is half


#: What users hold of a context, by subject; what operations need of each other stands in `core`.
FACE = {
    "choices": "format rounding traps asarray replace in_format spawn",
    "left behind": "flags clear_flags counts operation",
    "values": """array constant decimal zeros ones full arange linspace unpack wrap quantize
        to_integers iterate""",
    "arithmetic": "add subtract multiply divide sqrt fma power ieee_remainder fmod remainder",
    "whole numbers": "round_to_integral floor ceil trunc",
    "signs": "negative absolute copysign sign",
    "extrema": "maximum minimum fmax fmin clip max min argmax argmin",
    "comparisons": "equal not_equal less less_equal greater greater_equal unordered total_order",
    "functions": "exp expm1 log log1p sinh cosh tanh sigmoid rsqrt erf sin cos",
    "sums and products": "sum mean dot matmul k_split conv2d",
}


def test_a_context_shows_what_users_hold():
    shown = {name for name in dir(fp.Context(fp.BINARY16)) if not name.startswith("_")}
    assert shown == {"core", *" ".join(FACE.values()).split()}
