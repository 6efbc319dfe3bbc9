"""numpy's functions on an Array: agreement with numpy on the carrier (**differential**), the order
of zeros and NaN (**corners**), and the page that lists what is offered (**golden**)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import fpsim as fp
from fpsim.array_functions import offered
from tests.tiers import pick

ROOT = Path(__file__).parents[2]
HALF = fp.Context(fp.BINARY16)
RANDOM = np.random.default_rng(7)
CUBE = HALF.array(RANDOM.permutation(24).reshape(2, 3, 4) - 11.5)
MATRIX = HALF.array(RANDOM.permutation(12).reshape(3, 4) / 4 - 1)
VECTOR = HALF.array([3.0, -1.0, 0.0, 2.5, 3.0, -0.5])

MOVES = [
    lambda x, v: np.reshape(x, (4, -1)), lambda x, v: np.reshape(x, shape=(6, 4)),
    lambda x, v: np.ravel(x), lambda x, v: np.squeeze(x[:1], 0), lambda x, v: np.squeeze(x[:1]),
    lambda x, v: np.expand_dims(x, (0, -1)), lambda x, v: np.transpose(x, (2, 0, 1)),
    lambda x, v: np.transpose(x), lambda x, v: np.permute_dims(x, (1, 0, 2)),
    lambda x, v: np.matrix_transpose(x), lambda x, v: np.swapaxes(x, 0, 2),
    lambda x, v: np.moveaxis(x, 0, -1), lambda x, v: np.rollaxis(x, 2),
    lambda x, v: np.atleast_2d(v), lambda x, v: np.atleast_1d(v, x)[1],
    lambda x, v: np.atleast_3d(v), lambda x, v: np.broadcast_to(x[:, :1], (2, 3, 4)),
    lambda x, v: np.broadcast_arrays(x, x[0])[1],
    lambda x, v: np.broadcast_arrays(x[0], x[:, :1])[0], lambda x, v: np.meshgrid(v, v[:2])[0],
    lambda x, v: np.meshgrid(v, v[:2], indexing="ij")[1], lambda x, v: np.flip(x),
    lambda x, v: np.flip(x, 1), lambda x, v: np.fliplr(x), lambda x, v: np.flipud(x),
    lambda x, v: np.roll(x, 3), lambda x, v: np.roll(x, (1, 2), (0, 2)),
    lambda x, v: np.rot90(x, 3, axes=(1, 2)), lambda x, v: np.concatenate([x, x], 1),
    lambda x, v: np.concatenate((x, x, x), axis=None), lambda x, v: np.stack([x, x], -1),
    lambda x, v: np.vstack([v, v]), lambda x, v: np.hstack((v, v)), lambda x, v: np.dstack([v, v]),
    lambda x, v: np.column_stack([v, v]), lambda x, v: np.block([[x, x], [x, x]]),
    lambda x, v: np.append(v, v), lambda x, v: np.append(v, 0.5),
    lambda x, v: np.insert(v, 2, 0.25), lambda x, v: np.delete(x, 1, axis=2),
    lambda x, v: np.split(v, 3)[1], lambda x, v: np.split(v, [1, 4])[2],
    lambda x, v: np.array_split(v, 4)[3], lambda x, v: np.hsplit(x, 3)[0],
    lambda x, v: np.vsplit(x, 2)[1], lambda x, v: np.dsplit(x, 2)[1],
    lambda x, v: np.unstack(x, axis=1)[2], lambda x, v: np.tile(v, (2, 2)),
    lambda x, v: np.repeat(v, [0, 1, 2, 0, 1, 0]), lambda x, v: np.resize(v, (2, 4)),
    lambda x, v: np.take(x, [0, 2], axis=1), lambda x, v: np.take(v, -1),
    lambda x, v: np.take_along_axis(v, np.array([5, 0]), 0),
    lambda x, v: np.compress([True, False, True], x, axis=1),
    lambda x, v: np.extract([True, False, True, True, False, True], v),
    lambda x, v: np.select([[True] * 3 + [False] * 3], [v], default=0.5),
    lambda x, v: np.tril(x, 1), lambda x, v: np.triu(x), lambda x, v: np.diag(v, 1),
    lambda x, v: np.diag(x[0]), lambda x, v: np.diagflat(v), lambda x, v: np.diagonal(x, 1, 0, 2),
    lambda x, v: np.trim_zeros(np.roll(v, 4)), lambda x, v: np.copy(x),
    lambda x, v: np.zeros_like(x), lambda x, v: np.ones_like(x), lambda x, v: np.full_like(x, 0.5),
    lambda x, v: np.full_like(x, 2, shape=(2, 2)), lambda x, v: np.pad(v, (1, 2)),
    lambda x, v: np.pad(x, 1, constant_values=0.5), lambda x, v: np.pad(x, 2, "reflect"),
    lambda x, v: np.pad(v, 2, mode="edge"), lambda x, v: np.pad(v, 2, "wrap"),
    lambda x, v: np.where(x > 0, x, 0.5), lambda x, v: np.where(np.array([True]), 1, v),
    lambda x, v: np.where(v, v, 2), lambda x, v: np.sort(x), lambda x, v: np.sort(x, 0),
    lambda x, v: np.sort(x, axis=None), lambda x, v: np.unique(v),
    lambda x, v: np.unique(v, return_index=True, return_counts=True)[0], lambda x, v: np.max(x),
    lambda x, v: np.max(x, 1), lambda x, v: np.max(x, (0, -1), keepdims=True),
    lambda x, v: np.min(x, axis=0), lambda x, v: np.min(x, keepdims=True),
    lambda x, v: np.nanmax(x, 1), lambda x, v: np.nanmin(x), lambda x, v: np.clip(x, -1.5, 2),
    lambda x, v: np.clip(v, 0, None), lambda x, v: np.clip(x, a_min=None, a_max=x[0]),
    lambda x, v: np.clip(x, min=-1, max=1), lambda x, v: np.floor(x / 4),
    lambda x, v: np.ceil(x / 4), lambda x, v: np.trunc(x / 4), lambda x, v: np.fix(x / 4),
    lambda x, v: np.round(x / 4), lambda x, v: np.square(v), lambda x, v: np.reciprocal(v[:2] - 1),
    lambda x, v: np.power(v, 3), lambda x, v: v**2, lambda x, v: np.sum(x, (0, 1), keepdims=True),
    lambda x, v: np.sum(x), lambda x, v: np.mean(x, 2, keepdims=True), lambda x, v: np.outer(v, v),
    lambda x, v: v[::-1], lambda x, v: x[None, ..., 1:3], lambda x, v: x[x > 0], lambda x, v: x.mT,
    lambda x, v: x.T, lambda x, v: x.ravel(), lambda x, v: x.flatten(),
    lambda x, v: x[:1].squeeze(0), lambda x, v: x.take([1], 2), lambda x, v: x.reshape(-1),
    lambda x, v: x.transpose(1, 0, 2), lambda x, v: x.max(1), lambda x, v: x.min(),
    lambda x, v: x.sum(0, keepdims=True), lambda x, v: x.mean(keepdims=True),
]
#: Results that are numbers or truth values.
ANSWERS = [
    lambda x, v: np.shape(x), lambda x, v: np.ndim(x), lambda x, v: np.size(x),
    lambda x, v: np.size(x, 1), lambda x, v: np.any(x - x), lambda x, v: np.any(x, (0, 1)),
    lambda x, v: np.all(v), lambda x, v: np.all(v, keepdims=True), lambda x, v: np.nonzero(v),
    lambda x, v: np.flatnonzero(v), lambda x, v: np.argwhere(v), lambda x, v: np.count_nonzero(v),
    lambda x, v: np.count_nonzero(x, axis=0), lambda x, v: np.argmax(x),
    lambda x, v: np.argmax(x, 1), lambda x, v: np.argmin(v),
    lambda x, v: np.argmin(x, axis=-1, keepdims=True), lambda x, v: np.argsort(x),
    lambda x, v: np.argsort(x, axis=0), lambda x, v: np.argsort(x, None),
    lambda x, v: np.argsort(v, kind="stable"), lambda x, v: np.where(v),
    lambda x, v: np.where(x > 0), lambda x, v: np.isin(v, [3.0, 0.0]),
    lambda x, v: np.isin(v, x[0, 0], invert=True), lambda x, v: np.isin(v, 1e6),
    lambda x, v: np.array_equal(x, x), lambda x, v: np.array_equal(x, v),
    lambda x, v: np.unique(v, return_inverse=True)[1],
    lambda x, v: np.unique(v, return_index=True)[1],
    lambda x, v: np.unique(v, return_counts=True)[1], lambda x, v: np.isfinite(x),
    lambda x, v: np.iscomplexobj(x), lambda x, v: np.isrealobj(x),
    lambda x, v: np.shares_memory(x, x), lambda x, v: x.any(0), lambda x, v: x.all(),
    lambda x, v: x.tolist(), lambda x, v: x.item(5), lambda x, v: float(v[0]),
    lambda x, v: int(v[3]), lambda x, v: complex(v[0]), lambda x, v: f"{v[3]:.3f}",
    lambda x, v: f"{v[3]}", lambda x, v: 2.5 in v, lambda x, v: 7.25 in x,
    lambda x, v: [float(e) for e in v], lambda x, v: len(x),
]


@pytest.mark.parametrize("call", MOVES)
def test_values_are_those_of_numpy_on_the_carrier(call) -> None:  # type: ignore[no-untyped-def]
    # No number here needs a rounding but in 1 / x, products and sums, which are exact in binary32.
    result = call(CUBE, VECTOR)
    assert isinstance(result, fp.Array)
    assert result.context is HALF
    expected = np.array(call(CUBE.values.copy(), VECTOR.values.copy()))
    rounded = fp.round_to(expected, fp.BINARY16)
    assert result.shape == expected.shape
    assert result.carrier.dtype == np.float32
    assert np.array_equal(result.values, rounded)


@pytest.mark.parametrize("call", ANSWERS)
def test_answers_are_those_of_numpy_on_the_carrier(call) -> None:  # type: ignore[no-untyped-def]
    result, expected = call(CUBE, VECTOR), call(CUBE.values.copy(), VECTOR.values.copy())
    if isinstance(expected, tuple):
        assert len(result) == len(expected)
        assert all(map(np.array_equal, result, expected))
    else:
        assert np.array_equal(result, expected)
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    "function", [np.exp, np.log, np.tanh, np.sqrt, np.floor, np.ceil, np.trunc]
)
def test_functions_of_the_context_round_correctly(function: np.ufunc) -> None:
    x = HALF.array([0.25, 1.0, 2.5, 7.1])
    expected = fp.round_to(function(x.values.astype(np.float64)), fp.BINARY16)
    assert np.array_equal(function(x).values, expected)
    out = HALF.zeros(4)
    assert function(x, out=out) is out
    assert np.array_equal(out.values, expected)


# Matrix products ------------------------------------------------------------------------------

SHAPES = [
    ((4,), (4,)), ((3, 4), (4,)), ((3,), (3, 4)), ((2, 3, 4), (4,)), ((3,), (2, 3, 4)),
    ((3, 4), (4, 2)), ((5, 3, 4), (4, 2)), ((5, 1, 3, 4), (2, 4, 2)), ((0, 4), (4,)),
    ((2, 0), (0,)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_products_have_numpys_shapes_and_values(left,
right) -> None:  # type: ignore[no-untyped-def]
    a, b = (HALF.array(RANDOM.integers(-8, 8, shape).astype(float)) for shape in (left, right))
    expected = a.values @ b.values
    for result in (a @ b, np.matmul(a, b), HALF.matmul(a, b)):
        assert result.shape == expected.shape
        assert np.array_equal(result.values, expected)
    out = HALF.zeros(expected.shape)
    assert HALF.matmul(a, b, out=out) is out
    assert np.array_equal(out.values, expected)
    through_unit = HALF.matmul(a, b, "V100_F16_F32")
    assert np.array_equal(through_unit.values, expected)


@pytest.mark.parametrize(("left", "right"), [*SHAPES, ((), (3,)), ((2, 3, 4), (5, 4, 2))])
def test_dot_inner_and_tensordot_are_numpys(left, right) -> None:  # type: ignore[no-untyped-def]
    a, b = (HALF.array(RANDOM.integers(-4, 4, shape).astype(float)) for shape in (left, right))
    calls = [np.dot, lambda x, y: np.tensordot(x, y, 0)]
    calls.append(lambda x, y: np.inner(x, np.swapaxes(y, -1, -2) if y.ndim > 1 else y))
    if left and right and len(right) < 3:
        calls.append(lambda x, y: np.tensordot(x, y, 1))
        calls.append(lambda x, y: np.tensordot(x, y, ([-1], [0])))
    for call in calls:
        try:
            expected = call(a.values, b.values)
        except ValueError:
            with pytest.raises(ValueError, match=r"shape|axes"):
                call(a, b)
            continue
        assert call(a, b).shape == expected.shape
        assert np.array_equal(call(a, b).values, expected)


def test_products_of_vectors_are_chains_of_roundings() -> None:
    rng = np.random.default_rng(3)
    a, b = (HALF.array(rng.standard_normal(50)) for _ in range(2))
    total = a[0] * b[0]
    for i in range(1, 50):
        total = total + a[i] * b[i]
    assert float(a @ b) == float(total) == float(np.vdot(a, b)) == float(np.vecdot(a, b))


def test_vectors_that_do_not_fit_are_refused() -> None:
    for call in (
        lambda: VECTOR @ MATRIX, lambda: MATRIX @ VECTOR, lambda: HALF.array(1.0) @ VECTOR,
        lambda: np.tensordot(VECTOR, MATRIX, 1), lambda: HALF.matmul(VECTOR, VECTOR[:2]),
    ):
        with pytest.raises(ValueError, match=r"shape|lengths"):
            call()
    with pytest.raises(TypeError, match=r"convert it with ctx\.array|not an Array"):
        VECTOR @ np.full(6, 0.1)
    with pytest.raises(TypeError, match=r"convert it with ctx\.array|not an Array"):
        np.full(6, 0.1) @ VECTOR


# Powers and whole numbers ---------------------------------------------------------------------


@pytest.mark.parametrize("mode", pick(["RNE", "RTP"], *[["RNE", "RTZ", "RTP"]] * 2))
@pytest.mark.parametrize("n", [2, 3, 5, -1, -2, 7.0, np.int64(3)])
def test_powers_are_products_from_the_left(n, mode: str) -> None:  # type: ignore[no-untyped-def]
    context = fp.Context(fp.BINARY16, rounding=mode)
    x = context.array([1.1, -0.3, 2.7])
    result = x
    for _ in range(abs(int(n)) - 1):
        result = context.multiply(result, x)
    if n < 0:
        result = context.divide(1.0, result)
    assert (x**n).codes().tolist() == result.codes().tolist()
    memory = x.carrier
    x **= n
    assert x.carrier is memory
    assert x.codes().tolist() == result.codes().tolist()


def test_powers_zero_and_one_compute_nothing() -> None:
    context = fp.Context(fp.BINARY16, rounding="SR", traps=fp.Flags.INVALID)
    x = fp.Context(fp.BINARY16, rounding="SR").array([np.nan, np.inf, -0.0, 2.0])
    x = context.wrap(x.values)
    before = context.operation, context.flags
    assert (x**0).values.tolist() == [1.0] * 4
    assert (x**1).codes().tolist() == x.codes().tolist()
    assert (context.operation, context.flags) == before


@pytest.mark.parametrize(
    ("n", "kind", "message"),
    [
        (1.5, TypeError, "not a whole number"), (-0.5, TypeError, "not a whole number"), (True,
        TypeError, "not a whole number"),
        (np.inf, TypeError, "not a whole number"), ("2", TypeError, "not a whole number"),
        ([1.5], TypeError, "not a whole number"), (10**9, ValueError, "4096 products"),
    ],
)
def test_other_powers_are_refused(n, kind, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(kind, match=message):
        VECTOR**n


#: The quick tier leaves out the format with one zero, which has kernels of its own.
WHOLE = [fp.E5M2, fp.E4M3FN, fp.E2M3FN, fp.F143]


@pytest.mark.parametrize("fmt", pick(WHOLE[:3], WHOLE, WHOLE), ids=str)
@pytest.mark.parametrize("mode", ["RNE", "SR", "RTO"])
def test_floor_ceil_and_trunc_of_every_value(fmt: fp.Format, mode: str) -> None:
    context = fp.Context(fmt, rounding=mode)
    x = context.wrap(fp.decode(np.arange(fmt.n_codes), fmt))
    for function in (np.floor, np.ceil, np.trunc):
        context.clear_flags()
        expected = function(x.values)
        held = fp.round_to(expected, fmt, "RTZ")
        result = function(x)
        inside = np.abs(expected) <= fmt.max
        assert np.array_equal(result.values[inside], held[inside])
        assert context.flags in (fp.Flags.NONE, fp.Flags.OVERFLOW | fp.Flags.INEXACT)
        assert context.operation == 0
        signs = np.signbit(result.values) == np.signbit(expected)
        assert (signs | np.isnan(expected) | (not fmt.has_negative_zero)).all()


def test_whole_numbers_raise_invalid_for_a_signalling_nan_and_work_in_binary64() -> None:
    context = fp.Context(fp.BINARY16)
    signalling = context.wrap(fp.decode(np.array([0x7C01]), fp.BINARY16))
    context.floor(signalling)
    assert context.flags == fp.Flags.INVALID
    wide = fp.Context(fp.BINARY64).array([1.5, -1.5])
    assert [np.floor(wide).tolist(), np.ceil(wide).tolist(), np.trunc(wide).tolist()] == [
        [1.0, -2.0], [2.0, -1.0], [1.0, -1.0],
    ]


def test_a_power_of_one_half_is_the_square_root() -> None:
    context = fp.Context(fp.BINARY16, rounding="SR", seed=2)
    x = context.array([2.0, 9.0, 0.1])
    before = context.operation
    roots = [x**0.5, np.power(x, 0.5), np.sqrt(x)]
    assert context.operation == before + 3
    context.operation = before
    assert [np.sqrt(x).codes().tolist() for _ in roots] == [r.codes().tolist() for r in roots]


# What scipy's array API asks for --------------------------------------------------------------


def test_the_type_of_an_array_is_a_type_that_may_be_named() -> None:
    x = HALF.array([[1.0, 2.0], [3.0, 4.0]])
    for dtype in (x.dtype, np.float16, "float16", "binary16", fp.BINARY16):
        for result in (
            np.sum(x, dtype=dtype), np.mean(x, dtype=dtype) * 4, x.sum(dtype=dtype),
            np.sum(x, None, dtype), x.cumsum(dtype=dtype)[-1],
        ):
            assert (result.item(), result.context) == (10.0, HALF)
        assert np.zeros_like(x, dtype=dtype).context is HALF
        assert np.concatenate([x, x], dtype=dtype).shape == (4, 2)
        assert np.full_like(x, 2, dtype).tolist() == [[2.0, 2.0]] * 2
        assert np.ones_like(x, dtype).context is np.empty_like(x, dtype=dtype).context is HALF
    for dtype in (np.float64, np.float32, "float32", "bfloat16", np.int8, "binary32", complex):
        for call in (lambda d=dtype: np.sum(x, dtype=d), lambda d=dtype: np.zeros_like(x, dtype=d)):
            with pytest.raises(TypeError, match="with dtype is not offered for Array"):
                call()
        with pytest.raises(TypeError, match="the result is binary16, carried in float32"):
            x.sum(dtype=dtype)


def test_questions_of_types_and_real_parts() -> None:
    x = HALF.array([1.0, -2.0])
    assert np.result_type(x) == np.result_type(x, 1.0) == np.result_type(x, np.float32) == x.dtype
    assert np.result_type(x, np.float64) == np.float64
    assert np.real(x) is x.real is x
    for copy in (np.conj(x), x.conj()):
        assert copy.tolist() == x.tolist()
        assert not np.shares_memory(copy, x)
    out = HALF.zeros(2)
    assert np.conjugate(x, out=out) is out
    assert out.tolist() == x.tolist()


MADE = [
    (lambda like: np.zeros((2, 3), like=like), np.zeros((2, 3))),
    (lambda like: np.ones(2, like=like), np.ones(2)),
    (lambda like: np.empty(2, like=like), np.zeros(2)),
    (lambda like: np.full((2,), 0.25, like=like), np.full(2, 0.25)),
    (lambda like: np.eye(3, 4, 1, like=like), np.eye(3, 4, 1)),
    (lambda like: np.identity(2, like=like), np.eye(2)),
    (lambda like: np.tri(3, k=-1, like=like), np.tri(3, k=-1)),
    (lambda like: np.arange(1, 2, 0.25, like=like), np.arange(1, 2, 0.25)),
    (lambda like: np.arange(3, like=like), np.arange(3)),
    (lambda like: np.array([[1, 2]], like=like), np.array([[1, 2]])),
    (lambda like: np.array(1.5, ndmin=2, like=like), np.array([[1.5]])),
    (lambda like: np.asarray([0.5], dtype=like.dtype, like=like), np.array([0.5])),
]


@pytest.mark.parametrize("number", range(len(MADE)))
def test_arrays_like_an_array_are_of_its_context(number: int) -> None:
    call, expected = MADE[number]
    result = call(HALF.zeros(1))
    assert result.context is HALF
    assert result.shape == expected.shape
    assert result.tolist() == expected.tolist()


def test_numbers_that_are_made_like_an_array_are_rounded_by_its_context() -> None:
    context = fp.Context(fp.BINARY16, rounding="RTP")
    x = np.array([0.1], like=context.zeros(1))
    assert x.item() == fp.round_to(0.1, "binary16", "RTP")
    assert context.flags == fp.Flags.INEXACT
    integers = np.zeros(2, dtype=int, like=x), np.arange(2, dtype=np.int8, like=x)
    assert [type(i) for i in integers] == [np.ndarray] * 2
    assert [i.dtype for i in integers] == [np.int64, np.int8]
    with pytest.raises(TypeError, match=r"dtype=<class 'float'> is not offered for like="):
        np.zeros(2, dtype=float, like=x)


# The page -------------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "arrays.md").read_text(encoding="utf-8")


def names(heading: str) -> list[str]:
    """numpy's names in code of the tables below a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [row.split("|")[1] for row in rows[1:]]
    return re.findall(r"`(\w+(?:\.\w+)?)`", " ".join(cells))


def test_the_page_lists_all_that_works_and_nothing_else() -> None:
    listed = names("Functions of numpy that work")
    assert sorted(listed) == sorted(set(listed))
    assert {getattr(np, name) for name in listed} == offered()


def test_what_the_page_says_is_refused_is_refused() -> None:
    listed = names("Functions of numpy that are refused")
    assert len(listed) > 40
    for name in listed:
        function = np
        for word in name.split("."):
            function = getattr(function, word)
        pair = isinstance(function, np.ufunc) and function.nin == 2
        with pytest.raises(TypeError, match=r"not offered for Array"):
            function(
                *(VECTOR,)
                * (3 if name in ("interp", "polyfit") else 2 if pair or name in TWO else 1)
            )


THREE = {"interp", "polyfit"}
#: Functions that take two arrays and are no ufuncs.
TWO = {
    "allclose", "isclose", "polyfit", "polyval", "searchsorted", "digitize", "linalg.solve",
    "setdiff1d", "union1d", "intersect1d",
    "interp", "array_equiv", "linalg.lstsq", "percentile", "quantile", "partition",
    "argpartition",
}


def test_the_sentence_of_a_refusal_says_what_to_do() -> None:
    with pytest.raises(TypeError) as error:
        np.linalg.det(VECTOR)
    assert str(error.value) == (
        "np.linalg.det is not offered for Array: it would round as numpy does; compute with the "
        "context's operations, or on x.values and come back by ctx.array. docs/arrays.md lists "
        "what works"
    )
    with pytest.raises(TypeError, match=r"fpsim\.linalg\.norm computes it in the context"):
        np.linalg.norm(HALF.array([1.0]))


def test_repetitions_and_parts_without_end_are_refused_at_once():
    x = fp.Context(fp.BINARY16).array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    for shape in ((2, 2), (4, 5), (0,), 7):
        assert np.array_equal(np.resize(x, shape).values, np.resize(x.values, shape))
    for count in (2, 4):
        parts = zip(np.array_split(x, count, 1), np.array_split(x.values, count, 1), strict=True)
        assert all(np.array_equal(a.values, b) for a, b in parts)
    with pytest.raises(ValueError, match=r"shape=1000000000000 makes 10{12} elements of 4 bytes"):
        np.resize(x, 10**12)
    with pytest.raises(
        ValueError, match=r"indices_or_sections=1000000000000 makes 10{12} elements"
    ):
        np.array_split(x, 10**12)
