"""The array API of a context: agreement with array-api-strict in binary32 (**differential**), and
its own rules (**corners**)."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import array_api_compat
import array_api_strict as strict
import numpy as np
import pytest

import fpsim as fp
from fpsim.array_namespace import Namespace

SINGLE = fp.Context(fp.BINARY32)
XP = Namespace(SINGLE)
RANDOM = np.random.default_rng(11)
#: Small numbers of quarters, of which sums and products are exact in any order.
X = RANDOM.permutation(24).reshape(2, 3, 4).astype(np.float32) / 4 - 2
V = np.float32([3.0, -1.0, 0.0, 2.5, 3.0, -0.5])
K = np.array([[3, -1, 2], [0, 7, -4]])
T = K > 0

CALLS = [
    lambda xp, x, v, k, t: xp.abs(x), lambda xp, x, v, k, t: xp.add(x, x),
    lambda xp, x, v, k, t: x + 1.0, lambda xp, x, v, k, t: 2.0 - x, lambda xp, x, v, k, t: -x,
    lambda xp, x, v, k, t: x * x, lambda xp, x, v, k, t: x / 4.0, lambda xp, x, v, k, t: abs(x),
    lambda xp, x, v, k, t: x**2, lambda xp, x, v, k, t: +x, lambda xp, x, v, k, t: x == v[0],
    lambda xp, x, v, k, t: x != 0.25, lambda xp, x, v, k, t: x < 0.0,
    lambda xp, x, v, k, t: x <= 0.25, lambda xp, x, v, k, t: x > 1.0,
    lambda xp, x, v, k, t: x >= 1.0, lambda xp, x, v, k, t: x[0, ::-1, ...],
    lambda xp, x, v, k, t: x[..., 1], lambda xp, x, v, k, t: x[x > 0.0],
    lambda xp, x, v, k, t: x.mT, lambda xp, x, v, k, t: x[0, ...].T, lambda xp, x, v, k, t: v @ v,
    lambda xp, x, v, k, t: xp.matmul(x, xp.matrix_transpose(x)),
    lambda xp, x, v, k, t: xp.vecdot(x, x), lambda xp, x, v, k, t: xp.vecdot(x, x, axis=0 - 2),
    lambda xp, x, v, k, t: xp.tensordot(x, x, axes=((0, 1), (0, 1))),
    lambda xp, x, v, k, t: xp.subtract(x, v[0]),
    lambda xp, x, v, k, t: xp.divide(x, xp.full_like(x, 2.0)), lambda xp, x, v, k, t: xp.floor(x),
    lambda xp, x, v, k, t: xp.ceil(x), lambda xp, x, v, k, t: xp.trunc(x),
    lambda xp, x, v, k, t: xp.round(x), lambda xp, x, v, k, t: xp.sqrt(xp.square(x)),
    lambda xp, x, v, k, t: xp.negative(x), lambda xp, x, v, k, t: xp.positive(x),
    lambda xp, x, v, k, t: xp.reciprocal(xp.ones_like(x)),
    lambda xp, x, v, k, t: xp.maximum(x, xp.flip(x)), lambda xp, x, v, k, t: xp.minimum(x, v[1]),
    lambda xp, x, v, k, t: xp.copysign(x, v[1]), lambda xp, x, v, k, t: xp.sign(x),
    lambda xp, x, v, k, t: xp.signbit(x), lambda xp, x, v, k, t: xp.isnan(x),
    lambda xp, x, v, k, t: xp.isfinite(x), lambda xp, x, v, k, t: xp.isinf(x),
    lambda xp, x, v, k, t: xp.clip(x, -1.0, 1.0), lambda xp, x, v, k, t: xp.clip(x, min=0.0),
    lambda xp, x, v, k, t: xp.pow(x, 3), lambda xp, x, v, k, t: xp.exp(xp.zeros_like(x)),
    lambda xp, x, v, k, t: xp.log(xp.ones(3)), lambda xp, x, v, k, t: xp.tanh(xp.zeros((2, 2))),
    lambda xp, x, v, k, t: xp.sum(x), lambda xp, x, v, k, t: xp.sum(x, axis=(0, 2), keepdims=True),
    lambda xp, x, v, k, t: xp.mean(x, axis=2), lambda xp, x, v, k, t: xp.max(x, axis=1),
    lambda xp, x, v, k, t: xp.min(x, axis=(0, 1), keepdims=True),
    lambda xp, x, v, k, t: xp.argmax(x), lambda xp, x, v, k, t: xp.argmin(x, axis=1, keepdims=True),
    lambda xp, x, v, k, t: xp.sort(v), lambda xp, x, v, k, t: xp.sort(x, axis=1, descending=True),
    lambda xp, x, v, k, t: xp.argsort(v), lambda xp, x, v, k, t: xp.argsort(v, descending=True),
    lambda xp, x, v, k, t: xp.unique_values(v), lambda xp, x, v, k, t: xp.unique_counts(v)[1],
    lambda xp, x, v, k, t: xp.unique_inverse(v)[1], lambda xp, x, v, k, t: xp.unique_all(v)[1],
    lambda xp, x, v, k, t: xp.nonzero(v)[0], lambda xp, x, v, k, t: xp.count_nonzero(x, axis=0),
    lambda xp, x, v, k, t: xp.all(x, axis=0), lambda xp, x, v, k, t: xp.any(v),
    lambda xp, x, v, k, t: xp.where(x > 0.0, x, xp.zeros_like(x)),
    lambda xp, x, v, k, t: xp.take(x, xp.asarray([2, 0]), axis=1),
    lambda xp, x, v, k, t: xp.take_along_axis(v, xp.asarray([2, 0])),
    lambda xp, x, v, k, t: xp.concat([x, x], axis=1),
    lambda xp, x, v, k, t: xp.stack([v, v], axis=-1),
    lambda xp, x, v, k, t: xp.expand_dims(x, axis=1),
    lambda xp, x, v, k, t: xp.flip(x, axis=(0, 1)), lambda xp, x, v, k, t: xp.moveaxis(x, 0, 2),
    lambda xp, x, v, k, t: xp.permute_dims(x, (2, 0, 1)), lambda xp, x, v, k, t: xp.repeat(v, 2),
    lambda xp, x, v, k, t: xp.reshape(x, (4, 6)), lambda xp, x, v, k, t: xp.roll(x, 1, axis=2),
    lambda xp, x, v, k, t: xp.squeeze(x[:1, ...], axis=0),
    lambda xp, x, v, k, t: xp.tile(v, (2, 1)), lambda xp, x, v, k, t: xp.unstack(x, axis=1)[2],
    lambda xp, x, v, k, t: xp.broadcast_to(v, (2, 6)), lambda xp, x, v, k, t: xp.tril(x, k=1),
    lambda xp, x, v, k, t: xp.broadcast_arrays(v, xp.zeros((2, 1)))[1],
    lambda xp, x, v, k, t: xp.triu(x), lambda xp, x, v, k, t: xp.meshgrid(v, v, indexing="ij")[1],
    lambda xp, x, v, k, t: xp.zeros((2, 3)), lambda xp, x, v, k, t: xp.ones(2, dtype=xp.int32),
    lambda xp, x, v, k, t: xp.full(3, 0.5), lambda xp, x, v, k, t: xp.full((2,), True),
    lambda xp, x, v, k, t: xp.full((2,), 7), lambda xp, x, v, k, t: xp.eye(3, 4, k=1),
    lambda xp, x, v, k, t: xp.eye(2, dtype=xp.int8), lambda xp, x, v, k, t: xp.arange(2, 7, 2),
    lambda xp, x, v, k, t: xp.arange(1.0), lambda xp, x, v, k, t: xp.arange(3, dtype=xp.float32),
    lambda xp, x, v, k, t: xp.linspace(0, 1, 5), lambda xp, x, v, k, t: xp.zeros_like(k),
    lambda xp, x, v, k, t: xp.ones_like(k, dtype=xp.float32),
    lambda xp, x, v, k, t: xp.empty_like(x) * 0.0, lambda xp, x, v, k, t: xp.full_like(x, 0.25),
    lambda xp, x, v, k, t: xp.asarray([1, 2]), lambda xp, x, v, k, t: xp.asarray([True]),
    lambda xp, x, v, k, t: xp.asarray(1, dtype=xp.float32),
    lambda xp, x, v, k, t: xp.asarray(x, copy=True), lambda xp, x, v, k, t: xp.astype(x, xp.int32),
    lambda xp, x, v, k, t: xp.astype(k, xp.float32), lambda xp, x, v, k, t: xp.astype(x, xp.bool),
    lambda xp, x, v, k, t: xp.astype(t, xp.int64), lambda xp, x, v, k, t: xp.add(k, k),
    lambda xp, x, v, k, t: xp.remainder(k, 3), lambda xp, x, v, k, t: xp.floor_divide(k, 2),
    lambda xp, x, v, k, t: xp.sum(k), lambda xp, x, v, k, t: xp.sort(k, descending=True),
    lambda xp, x, v, k, t: xp.logical_not(t), lambda xp, x, v, k, t: xp.bitwise_and(k, k),
    lambda xp, x, v, k, t: xp.isin(k, k[:1, ...]), lambda xp, x, v, k, t: xp.where(t, k, 0 * k),
    lambda xp, x, v, k, t: xp.unique_values(k),
]


@pytest.mark.parametrize("call", CALLS)
def test_results_are_those_of_array_api_strict(call) -> None:  # type: ignore[no-untyped-def]
    ours = call(XP, SINGLE.array(X), SINGLE.array(V), K, T)
    single = [strict.asarray(a) for a in (X, V, K, T)]
    previous = strict.get_array_api_strict_flags()
    assert previous["api_version"] >= "2024.12"
    theirs = call(strict, *single)
    expected = np.asarray(theirs)
    assert tuple(ours.shape) == theirs.shape
    floating = expected.dtype.kind == "f"
    assert isinstance(ours, fp.Array) == floating
    assert floating or np.asarray(ours).dtype == expected.dtype
    assert np.array_equal(np.asarray(ours), expected)


def test_the_namespace_is_found_and_is_one() -> None:
    x, y = SINGLE.array([1.0]), fp.Context(fp.BINARY32, seed=3).array([1.0])
    assert array_api_compat.is_array_api_obj(x)
    assert array_api_compat.array_namespace(x, y) == XP
    assert array_api_compat.device(x) == x.device == "cpu"
    assert x.to_device("cpu") is x
    assert x.__array_namespace__(api_version="2023.12").__array_api_version__ == "2024.12"
    other = fp.Context(fp.BINARY32, rounding="RTZ").array([1.0])
    with pytest.raises(TypeError, match="Multiple namespaces"):
        array_api_compat.array_namespace(x, other)


def test_numbers_enter_by_the_rounding_of_the_context() -> None:
    context = fp.Context(fp.BINARY16, rounding="RTP")
    xp = Namespace(context)
    assert xp.asarray([0.1]).values.tolist() == context.array([0.1]).values.tolist()
    assert context.flags == fp.Flags.INEXACT
    assert xp.asarray(np.float32([0.1])).context is context
    assert xp.asarray([xp.asarray(0.5), xp.asarray(0.25)]).tolist() == [0.5, 0.25]
    x = xp.asarray([1.0])
    assert xp.asarray(x) is xp.asarray(x, dtype=xp.float32) is x
    assert xp.asarray(x, dtype=xp.int8).tolist() == [1]


def test_types_are_the_contexts_and_numpys() -> None:
    assert XP.isdtype(XP.float32, "real floating")
    assert XP.isdtype(XP.float32, ("integral", "numeric"))
    assert XP.isdtype(XP.int8, "signed integer")
    assert not XP.isdtype(XP.int8, XP.float32)
    assert XP.result_type(SINGLE.zeros(1), XP.float32, 1.0) == XP.float32
    assert XP.result_type(XP.int8, XP.int16) == XP.int16
    assert XP.can_cast(XP.int8, XP.int16)
    assert not XP.can_cast(XP.int8, XP.float32)
    assert XP.finfo(XP.float32)[:5] == (
        32, 2.0**-23, float(np.finfo("f4").max), float(np.finfo("f4").min), 2.0**-126,
    )
    assert XP.iinfo(XP.int8).max == 127
    info = XP.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == XP.float32
    assert set(info.dtypes(kind="real floating")) == {"float32"}
    assert set(info.dtypes()) == {"bool", "float32", *info.dtypes(kind="integral")}
    assert (info.devices(), info.default_device()) == (["cpu"], "cpu")
    assert info.capabilities()["boolean indexing"]


@pytest.mark.parametrize(
    "fmt", [fp.BINARY16, fp.BFLOAT16, fp.E4M3FN, fp.F143, fp.TF32, fp.BINARY64], ids=str
)
def test_every_format_has_a_namespace(fmt: fp.Format) -> None:
    xp = Namespace(fp.Context(fmt))
    x = xp.asarray([1.5, -0.5])
    assert x.dtype == xp.dtype == getattr(xp, xp.dtype.name)
    assert xp.isdtype(x.dtype, "real floating")
    assert (xp.finfo(x.dtype).bits, xp.finfo(x).eps) == (fmt.bits, fmt.eps)
    assert (x * x).tolist() == [2.25, 0.25]
    assert xp.sort(x).tolist() == [-0.5, 1.5]


def test_not_a_numbers_are_values_of_their_own() -> None:
    x = XP.asarray([np.nan, -0.0, 0.0, np.nan])
    assert XP.unique_all(x).counts.tolist() == [2, 1, 1]
    assert len(np.unique(x)) == 2
    assert np.isnan(XP.sort(x, descending=True).values).tolist() == [True, True, False, False]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: XP.tan, AttributeError, "'tan' is not offered"),
        (lambda: XP.float64, AttributeError, "'float64' is not offered"),
        (lambda: XP.sqrt(K), TypeError, r"convert: xp.astype\(x, xp.float32\)"),
        (lambda: XP.zeros(2, dtype=np.float64), TypeError, "this namespace has float32, bool"),
        (lambda: XP.asarray(1j), TypeError, "complex"),
        (lambda: XP.asarray([0.5], copy=False), ValueError, "copy=False"),
        (lambda: XP.zeros(2, device="gpu"), ValueError, "device='gpu'"),
        (lambda: SINGLE.zeros(1).to_device("gpu"), ValueError, "device='gpu'"),
        (lambda: XP.finfo(XP.int8), TypeError, "dtype=int8 is not the floating type"),
        (lambda: XP.result_type(XP.int8, XP.float32), TypeError, "do not mix"),
        (lambda: XP.result_type(XP.int8, 1.0), TypeError, "do not mix"),
        (lambda: XP.linspace(0, 1, 2, dtype=XP.int8), TypeError, "linspace has the type float32"),
        (lambda: XP.floor_divide(SINGLE.ones(1), 2.0), TypeError, "not offered for Array"),
        (lambda: Namespace(SINGLE, "1999.1"), ValueError, "api_version='1999.1'"),
        (lambda: SINGLE.ones(2) + np.full(2, 0.1), TypeError, "convert with ctx.array"),
    ],
)
def test_what_is_missing_is_refused(call, kind, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(kind, match=message):
        call()


def test_the_page_lists_what_of_the_standard_is_missing() -> None:
    page = (Path(__file__).parents[2] / "docs" / "arrays.md").read_text(encoding="utf-8")
    section = page.partition("## The array API standard\n")[2]
    missing, refused = (
        set(re.findall(r"`(\w+)`", re.search(rf"^{word}:(.*?)^$", section, re.M | re.S)[1]))  # type: ignore[index]
        for word in ("Missing", "For integers and truth values only")
    )
    assert {name for name in strict.__all__ if not hasattr(XP, name)} - PRIVATE == missing
    for name in refused:
        function = getattr(XP, name)
        with pytest.raises(TypeError):
            function(*[SINGLE.ones(2)] * (1 if name.endswith(("not", "invert")) else 2))


@pytest.mark.parametrize(
    "name", [n for n in strict.__all__ if inspect.isfunction(getattr(strict, n)) and hasattr(XP, n)]
)
def test_parameters_have_the_standards_names_and_order(name: str) -> None:
    ours = inspect.signature(getattr(XP, name)).parameters
    theirs = inspect.signature(getattr(strict, name)).parameters
    by_name = [p.name for p in theirs.values()
               if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind == p.VAR_KEYWORD for p in ours.values())
    assert takes_any or set(by_name) <= set(ours)
    positional = [p.kind for p in theirs.values() if p.kind == p.POSITIONAL_ONLY]
    taken = [p for p in ours.values()
             if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    assert len(taken) >= len(positional) or any(p.kind == p.VAR_POSITIONAL for p in ours.values())


#: Names of array-api-strict that are not the standard's.
PRIVATE = {
    "__array_api_version__", "ArrayAPIStrictFlags", "get_array_api_strict_flags",
    "reset_array_api_strict_flags", "set_array_api_strict_flags", "__version__", "Device",
}


def test_several_types_are_broadcast_and_nothing_is_promoted():
    for results in (
        XP.broadcast_arrays(XP.asarray(V), XP.asarray([[1], [2]]), XP.asarray(True)),
        XP.meshgrid(XP.asarray(V), XP.asarray([1, 2]), XP.asarray([True])),
    ):
        assert type(results) is list
        assert isinstance(results[0], fp.Array)
        assert [x.dtype.kind for x in results[1:]] == ["i", "b"]
        assert len({x.shape for x in results}) == 1
    for indexing in ("xy", "ij"):
        grid = XP.meshgrid(XP.asarray(V), XP.asarray([1, 2]), XP.asarray([3.0]), indexing=indexing)
        wanted = np.meshgrid(V, [1, 2], [3.0], indexing=indexing)
        assert all(np.array_equal(np.asarray(a), b) for a, b in zip(grid, wanted, strict=True))
    assert XP.meshgrid() == XP.broadcast_arrays() == []
    assert XP.meshgrid(XP.asarray(2.0))[0].shape == (1,)


def test_integer_types_are_described_by_an_array_too():
    for kind in (np.int8, XP.asarray([1], dtype=np.int8), np.dtype(np.int8)):
        info = XP.iinfo(kind)
        assert (info.bits, info.max, info.min, info.dtype) == (8, 127, -128, np.int8)
    for wrong in (np.float32, XP.asarray([1.0]), XP.asarray(True)):
        with pytest.raises(TypeError, match="is not an integer type; use one of int8"):
            XP.iinfo(wrong)


def test_promotion_mixes_no_kinds():
    for a, b in ((XP.bool, XP.int8), (XP.int8, XP.bool), (XP.int8, XP.float32)):
        assert not XP.can_cast(a, b)
        assert not strict.can_cast(getattr(strict, a.name), getattr(strict, b.name))
    assert XP.can_cast(XP.bool, XP.bool)
    assert XP.can_cast(XP.int8, XP.int16)


def test_a_change_to_the_own_type_leaves_no_format():
    half = fp.Context(fp.BINARY16)
    xp, x = Namespace(half), half.array([1.0, 0.5])
    copies = xp.astype(x, xp.float32), xp.astype(x, xp.float32, copy=False)
    for y in (*copies, xp.sum(K, dtype=xp.dtype)):
        assert y.context is half
    assert xp.astype(x, xp.float32, copy=False) is x
    assert xp.sum(K, dtype=xp.float32).item() == K.sum()


def test_a_sum_takes_its_own_type():
    assert float(XP.sum(XP.asarray(V), dtype=XP.float32)) == V.sum()
    with pytest.raises(TypeError, match="dtype=int8 is not offered for sums"):
        XP.sum(XP.asarray(V), dtype=np.dtype(np.int8))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: XP.meshgrid([1.0], V), TypeError, r"arrays\[0\] is list, not an array"),
        (lambda: XP.broadcast_arrays(XP.asarray(V), 2.0), TypeError, r"arrays\[1\] is float"),
        (lambda: XP.meshgrid(XP.asarray(X)), ValueError, r"arrays\[0\] has shape \(2, 3, 4\)"),
        (lambda: XP.meshgrid(indexing="ji"), ValueError, "indexing='ji' is not known"),
        (lambda: XP.eye(2, k=0.5), TypeError, "k=0.5 is not the number of a diagonal"),
        (lambda: XP.eye(-1), ValueError, r"shape=\(-1, -1\) has a negative extent"),
        (lambda: XP.arange(3, step=0), ValueError, "step=0 reaches no stop"),
        (lambda: XP.arange(10**14), ValueError, "stop=10{14} makes 10{14} elements of 8 bytes"),
        (lambda: XP.zeros((10**8, 10**8), dtype=np.int8), ValueError, "makes 10{16} elements"),
    ],
)
def test_what_the_standard_does_not_know_is_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
