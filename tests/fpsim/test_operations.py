"""Operations of a Context by every name: law (spellings agree), refusals; extrema (corners)."""

from __future__ import annotations

import operator
from fractions import Fraction

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import from_codes
from fpsim.judge.oracle import convert, operate, round_exact
from fpsim.judge.oracle.rounding import decode
from fpsim.operations import divide_by

#: Values and specials that meet each other in every pair.
CODES = [
    0,
    0x8000,
    1,
    0x8001,
    0x0400,
    0x3C00,
    0xBC00,
    0x3C01,
    0x7BFF,
    0x7C00,
    0xFC00,
    0x7E01,
    0x7D01,
]
PAIRS = [(x, y) for x in CODES for y in CODES]


def array(context, codes):
    return context.wrap(from_codes(np.array(codes, np.uint16), fp.BINARY16))


def outcome(call, *codes, **choices):
    """Codes (or truth values) and flags of an operation on these columns of codes."""
    context = fp.Context(fp.BINARY16, **choices)
    result = call(context, *(array(context, c) for c in codes))
    values = result.codes() if isinstance(result, fp.Array) else result
    return np.asarray(values).tolist(), context.flags


def union(name, rows):
    results = [operate(name, row, fp.BINARY16) for row in rows]
    flags = fp.Flags.NONE
    for _, raised in results:
        flags |= raised
    return [code for code, _ in results], flags


SPELLINGS = {
    "add": (operator.add, np.add),
    "subtract": (operator.sub, np.subtract),
    "multiply": (operator.mul, np.multiply),
    "divide": (operator.truediv, np.divide),
    "maximum": (np.maximum,),
    "minimum": (np.minimum,),
    "fmax": (np.fmax,),
    "fmin": (np.fmin,),
    "fmod": (np.fmod,),
    "ieee_remainder": (),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_every_spelling_is_the_operation_of_the_oracle(name):
    wanted = union(name, PAIRS)
    x, y = zip(*PAIRS, strict=True)
    assert outcome(lambda c, a, b: getattr(c, name)(a, b), x, y) == wanted
    for spelling in SPELLINGS[name]:
        assert outcome(lambda c, a, b, f=spelling: f(a, b), x, y) == wanted


RELATIONS = {
    "equal": (operator.eq, np.equal), "not_equal": (operator.ne, np.not_equal),
    "less": (operator.lt, np.less), "less_equal": (operator.le, np.less_equal),
    "greater": (operator.gt, np.greater), "greater_equal": (operator.ge, np.greater_equal),
}


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("name", RELATIONS)
def test_every_spelling_of_a_relation_has_its_truth_and_flags(name, quiet):
    pairs = [p for p in PAIRS if not (quiet and 0x7D01 in p)]
    base = {"not_equal": "equal", "greater": "less", "greater_equal": "less_equal"}.get(name, name)
    rows = [p[::-1] for p in pairs] if name.startswith("greater") else pairs
    signalling = base if base == "equal" else f"{base}_signalling"
    codes, flags = union(signalling, rows)
    truth = [bool(code) ^ (name == "not_equal") for code in codes]
    x, y = zip(*pairs, strict=True)
    for spelling in RELATIONS[name]:
        assert outcome(lambda c, a, b, f=spelling: f(a, b), x, y) == (truth, flags)
    assert outcome(lambda c, a, b: c.core.compare(name, a, b), x, y) == (truth, flags)
    assert flags == (fp.Flags.NONE if quiet and base == "equal" else fp.Flags.INVALID)


@pytest.mark.parametrize("name", ["equal", "less", "less_equal"])
@pytest.mark.parametrize("signalling", [None, False, True])
def test_a_method_says_whether_a_quiet_nan_signals(name, signalling):
    choice = {} if signalling is None else {"signalling": signalling}
    truth, flags = outcome(lambda c, a, b: getattr(c, name)(a, b, **choice), [0x7E01], [0x3C00])
    default = name != "equal"
    assert truth == [False]
    assert bool(flags) == (default if signalling is None else signalling)


@pytest.mark.parametrize(
    ("name", "spellings"),
    [
        ("sqrt", (np.sqrt,)), ("negative", (operator.neg, np.negative)),
        ("absolute", (abs, np.absolute)), ("round_to_integral", (np.rint,)),
    ],
)
def test_operations_of_one_operand(name, spellings):
    codes = [*CODES, 0x3E00, 0x4100, 0xC100]
    wanted = union(name, [(c,) for c in codes])
    assert outcome(lambda c, a: getattr(c, name)(a), codes) == wanted
    for spelling in spellings:
        assert outcome(lambda c, a, f=spelling: f(a), codes) == wanted


def test_fused_multiply_add_of_every_triple():
    rows = [(x, y, z) for x, y in PAIRS for z in CODES]
    assert outcome(lambda c, *a: c.fma(*a), *zip(*rows, strict=True)) == union("fma", rows)


@pytest.mark.parametrize(
    ("name", "exact", "poles", "invalid"),
    [
        ("exp", [0.0], [], []), ("log", [1.0], [0.0, -0.0], [-1.0]), ("tanh", [0.0, -0.0], [], []),
        ("sigmoid", [0.0], [], []), ("rsqrt", [1.0, 4.0], [0.0, -0.0], [-1.0]),
        ("erf", [0.0, -0.0], [], []), ("sin", [0.0, -0.0], [], [np.inf, -np.inf]),
        ("cos", [0.0, -0.0], [], [np.inf, -np.inf]), ("expm1", [0.0, -0.0, -np.inf], [], []),
        ("log1p", [0.0, -0.0, np.inf], [-1.0], [-1.5, -np.inf]),
        ("sinh", [0.0, -0.0, -np.inf], [], []), ("cosh", [0.0, -0.0, -np.inf], [], []),
    ],
)
def test_elementary_functions_raise_what_their_case_says(name, exact, poles, invalid):
    def raised(x):
        context = fp.Context(fp.BINARY16)
        getattr(context, name)(context.array(x))
        return context.flags

    assert {raised(x) for x in exact} == {fp.Flags.NONE}
    assert {raised(x) for x in poles} <= {fp.Flags.DIVBYZERO}
    assert {raised(x) for x in invalid} <= {fp.Flags.INVALID}
    assert raised(0.5) == fp.Flags.INEXACT
    assert raised(np.nan) == fp.Flags.NONE
    with pytest.raises(TypeError, match=f"{name} is not offered in binary64"):
        getattr(fp.Context(fp.BINARY64), name)(0.5)


@pytest.mark.parametrize("divisor", [3.0, 2.0**17, 2.0**-120, 1e38])
def test_a_divisor_may_be_beyond_the_format(divisor):
    finite = [c for c in CODES if decode(c, fp.BINARY16).kind == "finite"]
    values, _ = outcome(lambda c, a: divide_by(c.core, a, divisor), finite)
    for code, value in zip(finite, values, strict=True):
        datum = decode(code, fp.BINARY16)
        exact = datum.value / decode_float(divisor)
        assert value == round_exact(exact, fp.BINARY16, sign_of_zero=datum.sign)[0]


def decode_float(x):
    return decode(int(np.float32(x).view(np.uint32)), fp.BINARY32).value


@pytest.mark.parametrize("divisor", [0.0, -1.0, np.inf, np.nan, 1e-40, 1e39])
def test_what_is_no_scale_divides_nothing(divisor):
    half = fp.Context(fp.BINARY16)
    with pytest.raises(ValueError, match="not a scale"):
        divide_by(half.core, half.array([1.0]), divisor)
    assert half.flags == fp.Flags.NONE


def test_converting_an_array_of_the_format_reads_it_and_another_rounds():
    assert outcome(lambda c, a: c.array(a), [0x7D01, 1]) == ([0x7E00, 1], fp.Flags.INVALID)
    quarter = fp.Context(fp.E4M3FN)
    result = quarter.array(array(fp.Context(fp.BINARY16), CODES))
    assert result.codes().tolist() == [convert(c, fp.BINARY16, fp.E4M3FN)[0] for c in CODES]
    assert (
        quarter.flags
        == fp.Flags.INVALID | fp.Flags.OVERFLOW | fp.Flags.INEXACT | fp.Flags.UNDERFLOW
    )


@pytest.mark.parametrize("name", ["add", "maximum", "fmod", "less", "sqrt", "exp", "to_integers"])
def test_a_trap_stops_every_kind_of_operation(name):
    half = fp.Context(fp.BINARY16, traps=fp.Flags.INVALID, rounding=fp.SR(3))
    x = array(half, [0x3C00, 0x7D01])
    arguments = {"sqrt": (x,), "exp": (x,), "to_integers": (x, "int32")}
    with pytest.raises(fp.FloatingPointTrap) as caught:
        getattr(half, name)(*arguments.get(name, (x, x)))
    assert caught.value.index == (1,)
    assert half.operation == 0


def test_every_relation_is_quiet_or_signalling_as_the_standard_says():
    """IEEE 754-2019 §5.6.1 and §5.11: by default as operators are, by word as either."""
    relations = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    for name in relations:
        for signalling in (None, False, True):
            half = fp.Context(fp.BINARY16)
            x = half.array([1.0, np.nan, 3.0])
            choice = {} if signalling is None else {"signalling": signalling}
            truth = getattr(half, name)(x, 2.0, **choice)
            assert (truth == getattr(np, name)(x.values, 2.0)).all()
            raises = name not in ("equal", "not_equal") if signalling is None else signalling
            assert bool(half.flags & fp.Flags.INVALID) == raises, (name, signalling)
    half = fp.Context(fp.BINARY16)
    assert half.unordered(half.array([1.0, np.nan]), half.array([np.nan, 1.0])).all()
    assert half.flags == fp.Flags.NONE
    signalling = half.unpack(np.uint16([0x7D01]))
    assert half.unordered(signalling, 1.0).all()
    assert half.flags == fp.Flags.INVALID


HALF = fp.BINARY16
SIGNALLING = np.array([[0x3C00, 0x7C01], [0x4000, 0x3800]], np.uint16)


def test_extrema_take_out_and_keepdims() -> None:
    context = fp.Context(HALF)
    x = context.array([[1.0, 5.0], [7.0, 3.0]])
    out = context.zeros((2, 1))
    assert context.max(x, 1, keepdims=True, out=out) is out
    assert out.values.tolist() == [[5.0], [7.0]]
    assert np.min(x, axis=0, out=context.zeros(2)).values.tolist() == [1.0, 3.0]
    assert context.argmax(x, 1, keepdims=True).tolist() == [[1], [0]]
    with pytest.raises(ValueError, match=r"out has shape \(2,\)"):
        context.max(x, 1, keepdims=True, out=context.zeros(2))


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_a_trap_names_the_row_and_publishes_nothing(name: str) -> None:
    context = fp.Context(HALF, traps=fp.Flags.INVALID, count=True)
    x = context.unpack(SIGNALLING)
    with pytest.raises(fp.FloatingPointTrap) as trap:
        getattr(context, name)(x, 1)
    assert trap.value.index == (0,)
    assert trap.value.operands[0] == 1.0
    assert np.isnan(trap.value.operands[1])
    assert context.counts is not None
    assert not list(context.counts)


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_nothing_has_no_extreme(name: str) -> None:
    context = fp.Context(HALF)
    with pytest.raises(ValueError, match="imum of no elements has no"):
        getattr(context, name)(context.zeros((2, 0)), 1)
    assert getattr(context, name)(context.zeros((0, 2)), 1).shape == (0,)


def test_the_number_wins_where_it_is_asked_to() -> None:
    context = fp.Context(HALF)
    x = context.array([np.nan, 1.0, 3.0])
    assert np.isnan(context.max(x).item())
    assert context.max(x, number_wins=True).item() == np.nanmax(x).item() == 3.0
    assert context.min(x, number_wins=True).item() == 1.0


@pytest.mark.parametrize(
    "bounds", [(-1.0, 2.0), (None, 0.5), (0.5, None), (2.0, -1.0), (None, None)]
)
def test_clip_is_a_minimum_of_a_maximum(bounds) -> None:  # type: ignore[no-untyped-def]
    context = fp.Context(HALF)
    x = context.array([np.nan, -0.0, 0.0, -np.inf, 0.75, 3.0])
    least, most = bounds
    expected = x if least is None else context.maximum(x, least)
    expected = expected if most is None else context.minimum(expected, most)
    result = context.clip(x, least, most)
    assert result.codes().tolist() == expected.codes().tolist()
    assert not np.shares_memory(result, x)
    y = x.copy()
    assert context.clip(y, least, most, out=y) is y
    assert y.codes().tolist() == expected.codes().tolist()


def test_extrema_never_count_as_operations() -> None:
    context = fp.Context(HALF, rounding="SR")
    x = context.wrap(np.float32([1.0, 2.0]))
    context.max(x), context.argmin(x), context.clip(x, 0, 1), context.floor(x)
    assert context.operation == 0


@pytest.mark.parametrize("rounding", ["RNE", "RTP", "RTZ"])
def test_a_power_to_an_array_is_rounded_once(rounding):
    random = np.random.default_rng(5)
    context = fp.Context(fp.BINARY16, rounding=rounding)
    x = context.array(random.uniform(0.1, 3, 200))
    n = random.integers(-4, 7, 200).astype(np.float32)
    results = (x ** context.wrap(n)).codes().tolist()
    flags = fp.Flags.NONE
    for value, power, code in zip(x.tolist(), n.tolist(), results, strict=True):
        wanted, raised = round_exact(
            Fraction(value) ** int(power), fp.BINARY16, context.core.settings.rounding
        )
        assert code == wanted
        flags |= raised
    assert context.flags & ~fp.Flags.INEXACT == flags & ~fp.Flags.INEXACT
    assert (2.0 ** context.wrap(n)).tolist() == (2.0**n).tolist()
    assert np.power(x, context.wrap(n)).codes().tolist() == results
    x **= context.wrap(n)
    assert x.codes().tolist() == results


def test_powers_of_arrays_have_the_flags_of_ieee_754_and_refuse_other_settings():
    context = fp.Context(fp.BINARY16)
    assert (context.array([0.0]) ** context.array([-1.0])).tolist() == [np.inf]
    assert context.flags == fp.Flags.DIVBYZERO
    context.clear_flags()
    assert np.isnan((context.array([-2.0]) ** context.array([0.5])).item())
    assert context.flags == fp.Flags.INVALID
    with pytest.raises(TypeError, match="never promotes"):
        context.ones(1) ** fp.Context(fp.BFLOAT16).ones(1)
    with pytest.raises(TypeError, match="not offered in binary64"):
        fp.Context(fp.BINARY64).ones(1) ** fp.Context(fp.BINARY64).ones(1)
