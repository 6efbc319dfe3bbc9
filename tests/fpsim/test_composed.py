"""numpy's functions that are several operations, against textbook loops on Arrays
(**differential**: codes, flags and operations), against numpy where nothing is rounded, **corners**
and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fpsim as fp
from tests.tiers import pick

SETTINGS = [
    {}, {"rounding": "SR", "seed": 5}, {"rounding": "RTP", "subnormals": "flush_both"},
    {"format": "e5m2", "rounding": "SR"}, {"format": "binary32", "rounding": "SR"},
]


def contexts(choices: dict[str, Any]) -> tuple[fp.Context, fp.Context]:
    choices = {"format": "binary16"} | choices
    return fp.Context(**choices), fp.Context(**choices)


def numbers(context: fp.Context, *shape: int) -> fp.Array:
    return context.array(np.random.default_rng(3).standard_normal(shape))


# Textbook loops -------------------------------------------------------------------------------


def cumsum_loop(x: fp.Array) -> fp.Array:
    sums = [x[0]]
    for i in range(1, len(x)):
        sums.append(sums[-1] + x[i])
    return np.stack(sums)


def dot_loop(context: fp.Context, pairs: list[tuple[fp.Array, fp.Array]]) -> fp.Array:
    x = np.stack([a for a, _ in pairs])
    return context.dot(x, np.stack([b for _, b in pairs]))


def convolve_loop(a: fp.Array, v: fp.Array) -> fp.Array:
    """Outputs from the left; the middle ones are one product, as for a matrix of windows."""
    context, n, m = a.context, len(a), len(v)
    outputs = [dot_loop(context, [(a[i], v[k - i]) for i in range(k + 1)]) for k in range(m - 1)]
    windows = np.stack([a[k : k + m] for k in range(n - m + 1)])
    outputs += list(windows @ v[::-1])
    outputs += [
        dot_loop(context, [(a[i], v[k - i]) for i in range(k - m + 1, n)])
        for k in range(n, n + m - 1)
    ]
    return np.stack(outputs)


def trapezoid_loop(y: fp.Array, x: fp.Array) -> fp.Array:
    widths = x[1:] - x[:-1]
    terms = widths * (y[1:] + y[:-1]) / 2
    return terms.sum()


def cross_loop(a: fp.Array, b: fp.Array) -> fp.Array:
    first = np.stack([a[1], a[2], a[0]]) * np.stack([b[2], b[0], b[1]])
    second = np.stack([a[2], a[0], a[1]]) * np.stack([b[1], b[2], b[0]])
    return first - second


def einsum_loop(x: fp.Array, y: fp.Array) -> fp.Array:
    """ij,jk->ik: a product of matrices; the last letter that is summed is innermost."""
    return x @ y


def diagonal_loop(x: fp.Array) -> fp.Array:
    return np.stack([x[i, i] for i in range(len(x))]).sum()


CASES: list[tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]] = [
    (np.cumsum, cumsum_loop, ((7,),)), (lambda x: np.cumsum(x, 0), cumsum_loop, ((5, 3),)),
    (lambda x: x.cumsum(1).T, lambda x: cumsum_loop(x.T), ((5, 3),)),
    (np.diff, lambda x: x[1:] - x[:-1], ((6,),)),
    (lambda x: np.diff(x, 2), lambda x: np.diff(np.diff(x)), ((6,),)),
    (lambda x: np.diff(x, axis=0), lambda x: x[1:] - x[:-1], ((4, 2),)),
    (lambda x: np.diff(x, prepend=0.5), lambda x: np.diff(np.append(np.full_like(x[:1], 0.5), x)),
     ((4,),)),
    (np.trapezoid, trapezoid_loop, ((9,), (9,))),
    (np.convolve, convolve_loop, ((8,), (3,))), (np.convolve, convolve_loop, ((5,), (1,))),
    (lambda x, y: np.convolve(y, x), convolve_loop, ((8,), (3,))),
    (np.cross, cross_loop, ((3,), (3,))), (np.kron, lambda a, b: (a[:, None] * b).reshape(-1),
                                           ((3,), (4,))),
    (lambda x, y: np.einsum("ij,jk->ik", x, y), einsum_loop, ((3, 4), (4, 2))),
    (lambda x, y: np.einsum("ij,kj", x, y), lambda x, y: x @ y.T, ((3, 4), (2, 4))),
    (lambda x, y: np.einsum("i,j", x, y), np.outer, ((3,), (2,))),
    (lambda x, y: np.einsum("bij,bjk->bik", x, y), np.matmul, ((2, 3, 4), (2, 4, 2))),
    (lambda x, y: np.einsum("ij,j", x, y), np.matmul, ((3, 4), (4,))),
    (lambda x: np.einsum("ii", x), diagonal_loop, ((4, 4),)),
    (lambda x: np.einsum("ij->j", x), lambda x: x.sum(0), ((4, 3),)),
    (lambda x, y: np.einsum("ij,ij", x, y), lambda x, y: x.ravel() @ y.ravel(), ((3, 4), (3, 4))),
    (lambda x, y: x.dot(y), np.matmul, ((3, 4), (4, 2))),
    (lambda x, y, z: np.einsum("ij,jk,kl->il", x, y, z), lambda x, y, z: (x @ y) @ z,
     ((2, 3), (3, 4), (4, 2))),
]


@pytest.mark.parametrize("choices", pick(SETTINGS[:2], SETTINGS, SETTINGS), ids=str)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_it_is_the_loop_on_arrays(number: int, choices: dict[str, Any]) -> None:
    call, loop, shapes = CASES[number]
    results = []
    for function, context in zip((call, loop), contexts(choices), strict=True):
        x = [numbers(context, *shape) for shape in shapes]
        result = function(*x)
        results.append((result.shape, result.codes().tolist(), context.flags, context.operation))
    assert results[0] == results[1]


WHOLE = np.random.default_rng(9)
EXACT: list[tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = [
    (lambda x: np.cumsum(x), ((3, 4),)), (lambda x: np.cumsum(x, -1), ((3, 4),)),
    (lambda x: np.diff(x, 0), ((5,),)), (lambda x: np.diff(x, 3, 0), ((5, 2),)),
    (lambda x: np.diff(x, append=np.ones((3, 1))), ((3, 4),)),
    (lambda x: np.diff(x, prepend=2, append=4), ((3, 4),)),
    (lambda x: np.trapezoid(x, dx=2), ((3, 5),)), (lambda x: np.trapezoid(x, axis=0), ((3, 5),)),
    (lambda x, y: np.trapezoid(x, y, axis=0), ((3, 5), (3,))),
    *((lambda x, y, m=m: np.convolve(x, y, m), s) for m in ("full", "same", "valid")
      for s in (((7,), (3,)), ((7,), (4,)), ((3,), (7,)), ((4,), (4,)), ((1,), (5,)))),
    *((lambda x, y, m=m: np.correlate(x, y, m), s) for m in ("full", "same", "valid")
      for s in (((7,), (3,)), ((7,), (4,)), ((3,), (7,)), ((4,), (4,)), ((1,), (5,)))),
    (lambda x, y: np.cross(x, y), ((4, 3), (3,))),
    (lambda x, y: np.cross(x, y, axis=0), ((3, 4), (3, 4))),
    (lambda x, y: np.cross(x, y, axisa=0, axisc=0), ((3, 4), (4, 3))),
    (lambda x, y: np.kron(x, y), ((2, 3), (3, 2))), (lambda x, y: np.kron(x, y), ((2,), (3, 2))),
    (lambda x, y: np.kron(x, y), ((2, 1, 2), (3,))), (lambda x, y: np.kron(x, y), ((), (3,))),
    (lambda x: np.einsum("ij->ji", x), ((2, 3),)), (lambda x: np.einsum("ii->i", x), ((3, 3),)),
    (lambda x: np.einsum("iij->j", x), ((3, 3, 2),)), (lambda x: np.einsum("ij->", x), ((2, 3),)),
    (lambda x: np.einsum("ba", x), ((2, 3),)),
    (lambda x, y: np.einsum("ij,k->k", x, y), ((2, 3), (4,))),
    (lambda x, y: np.einsum("ij,jk->ki", x, y), ((2, 3), (3, 4))),
    (lambda x, y: np.einsum("ijk,jil->kl", x, y), ((3, 4, 2), (4, 3, 5))),
    (lambda x, y: np.einsum("ii,ij->j", x, y), ((3, 3), (3, 2))),
    (lambda x, y: np.einsum("i,ij,j", x, y, x), ((3,), (3, 3))),
    (lambda x, y: np.einsum(",i->i", x, y), ((), (3,))),
    (lambda x, y: np.einsum("ab,ab->ba", x, y), ((2, 3), (2, 3))),
    (lambda x, y: np.einsum("ij,jk->ik", x, y), ((2, 0), (0, 3))),
]


@pytest.mark.parametrize("number", range(len(EXACT)))
def test_values_are_numpys_where_nothing_is_rounded(number: int) -> None:
    call, shapes = EXACT[number]
    arrays = [WHOLE.integers(-4, 5, shape).astype(float) for shape in shapes]
    context = fp.Context("binary16")
    result = call(*map(context.array, arrays))
    expected = np.asarray(call(*arrays))
    assert result.shape == expected.shape
    assert np.array_equal(result.values, expected)
    assert context.flags == fp.Flags.NONE


def test_numbers_and_ndarrays_beside_an_array_enter_as_operands_do() -> None:
    x = fp.Context("binary16").array([1.0, 2.0, 3.0])
    assert np.dot(x, np.ones(3)).item() == np.vdot(np.ones(3), x).item() == 6.0
    assert np.convolve(x, np.array([1.0, 1.0])).tolist() == [1.0, 3.0, 5.0, 3.0]
    assert np.kron(x, 0.1).tolist() == (x * 0.1).tolist() == np.dot(0.1, x).tolist()
    assert np.einsum("i,i", x, np.eye(3)[0]).item() == 1.0
    assert np.tensordot(np.eye(3), x, 1).tolist() == x.tolist()
    out = fp.Context("binary16").zeros(3)
    assert np.cumsum(x, out=out) is out
    assert out.tolist() == [1.0, 3.0, 6.0]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: np.diff(x, -1), ValueError, "n=-1 is not a number of differences"),
        (lambda x: np.diff(x, 1.5), ValueError, "n=1.5 is not a number of differences"),
        (lambda x: np.convolve(x, x, "whole"), ValueError, "use one of full, same, valid"),
        (lambda x: np.convolve(x[None], x), ValueError, "give two vectors"),
        (lambda x: np.convolve(x[:0], x), ValueError, "not empty"),
        (lambda x: np.convolve(x, [1.0, 2.0]), TypeError, r"convert with ctx\.array"),
        (lambda x: np.convolve(x, np.full(2, 0.1)), TypeError, r"convert with ctx\.array"),
        (lambda x: np.convolve(x, fp.Context("bfloat16").ones(3)), TypeError, "never promotes"),
        (lambda x: np.cross(x[:2], x[:2]), ValueError, "vectors of three numbers"),
        (lambda x: np.einsum("ij,j", x, x), ValueError, "name 2 axes of an Array of 1"),
        (lambda x: np.einsum("i,i", x, x[:2]), ValueError, "lengths 3 and 2"),
        (lambda x: np.einsum("i->ii", x), ValueError, "do not name"),
        (lambda x: np.einsum("i,j", x), ValueError, "do not name 1 operands"),
        (lambda x: np.einsum("i...", x), ValueError, "more than letters"),
        (lambda x: np.einsum(x, [0]), TypeError, "as a text"),
        (lambda x: np.einsum("i", x, optimize=True), TypeError, "optimize=True is not offered"),
        (lambda x: np.cumsum(x, dtype=np.int8), TypeError, "np.cumsum with dtype"),
        (lambda x: np.cumsum(x, 5), ValueError, "axis=5 is not there"),
    ],
)
def test_what_has_no_order_is_refused(call, kind, message) -> None:  # type: ignore[no-untyped-def]
    context = fp.Context("binary16", rounding="SR")
    x = context.array([1.0, 2.0, 3.0])
    before = context.operation, context.flags
    with pytest.raises(kind, match=message):
        call(x)
    assert (context.operation, context.flags) == before
