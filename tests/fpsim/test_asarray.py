"""What leaves a format is refused, told once or allowed, and numpy's numbers enter only exactly
(**corners**)."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import scipy.linalg

import fpsim as fp


def test_a_decomposition_that_leaves_the_format_is_told_once() -> None:
    context = fp.Context("binary16")
    x = context.array([[4.0, 3.0], [6.0, 3.0]])
    with pytest.warns(UserWarning, match=r"an Array of binary16 became an ndarray of float32"):
        _, _, upper = scipy.linalg.lu(x)
    assert upper.dtype == np.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scipy.linalg.lu(x)
        np.asarray(x.to("bfloat16"))  # the same flags, hence told already
    with pytest.warns(UserWarning, match="became an ndarray"):
        np.asarray(fp.Context("binary16").array([1.0]))


def test_the_warning_names_the_line_of_the_user() -> None:
    x = fp.Context("binary16").array([[4.0, 3.0], [6.0, 3.0]])
    with pytest.warns(UserWarning, match="became an ndarray") as told:
        scipy.linalg.lu(x)
    assert told[0].filename == __file__


def test_it_is_refused_where_the_context_says_so() -> None:
    x = fp.Context("binary16", asarray="refuse").array([[4.0, 3.0], [6.0, 3.0]])
    for call in (lambda: scipy.linalg.lu(x), lambda: np.asarray(x), lambda: np.array(x)):
        with pytest.raises(TypeError, match=r"asarray='refuse': an Array of binary16 .* x\.values"):
            call()
    assert x.values.shape == (2, 2)
    x.context.asarray = "allow"
    assert np.asarray(x).tolist() == [[4.0, 3.0], [6.0, 3.0]]


@pytest.mark.parametrize(
    ("fmt", "rounding", "told"),
    [
        ("binary64", "RNE", 0), ("binary32", "RNE", 0), ("binary32", "SR", 1),
        ("binary32", "RTZ", 1), ("tf32", "RNE", 1), ("e4m3fn", "RNE", 1),
    ],
)
def test_only_arithmetic_that_differs_is_told(fmt: str, rounding: str, told: int) -> None:
    x = fp.Context(fmt, rounding=rounding).array([1.0])
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        np.asarray(x)
        np.asarray(x)
    assert len(notes) == told


def test_the_choice_goes_with_the_context() -> None:
    context = fp.Context("binary16", asarray="refuse")
    others = [
        context.replace(rounding="RTZ"), context.in_format("bfloat16"), context.spawn(1),
        pickle.loads(pickle.dumps(context)),
    ]
    assert [c.asarray for c in others] == ["refuse"] * 4
    assert context.replace(asarray="allow").asarray == "allow"
    for wrong in ("raise", 1, None, np.ones(2)):
        with pytest.raises(ValueError, match="use one of refuse, warn, allow"):
            fp.Context("binary16", asarray=wrong)  # type: ignore[arg-type]


def test_what_enters_a_context_leaves_nothing() -> None:
    context = fp.Context("binary16", asarray="refuse")
    x = context.array([1.0, 2.0])
    assert context.array([x[0], x[1], 3.0]).tolist() == [1.0, 2.0, 3.0]
    assert context.array([[x[0], 2], (x[1], 4)]).tolist() == [[1.0, 2.0], [2.0, 4.0]]


# numpy's numbers beside an Array --------------------------------------------------------------

HELD = [
    np.float32(1.5), np.float16(0.1), np.int64(-3), np.uint8(7), np.bool_(True), np.float64(0.25),
    np.array([1.0, -0.0]), np.array([1, 2]), np.array([np.inf, np.nan]), np.array([True, False]),
]
NOT_HELD = [
    np.float32(0.1), np.int64(2049), np.array([1.0, 1e6]), np.array([2**60 + 1, 0]),
    np.array([1, 2049], np.uint64), np.array([1e-9]), np.array([1.0], ">f4"),
    np.array([1.0], np.longdouble), np.array([1j]), np.array(["1"]), np.array([1], object),
    np.array([1], "m8[s]"),
]


@pytest.mark.parametrize("other", HELD, ids=repr)
def test_numbers_that_the_format_holds_are_taken_as_they_are(other) -> None:  # type: ignore[no-untyped-def]
    context = fp.Context("binary16", rounding="SR")
    x = context.array([1.5, 2.5])
    context.clear_flags()
    before = context.operation
    there = context.wrap(np.asarray(other).astype(np.float32))
    ours = x + other
    context.operation = before
    assert ours.codes().tolist() == (x + there).codes().tolist()
    context.operation = before
    assert (other + x).codes().tolist() == ours.codes().tolist()
    x[:] = other
    assert x.codes().tolist() == np.broadcast_to(there.codes(), 2).tolist()


@pytest.mark.parametrize("other", NOT_HELD, ids=repr)
def test_numbers_that_the_format_has_not_are_refused(other) -> None:  # type: ignore[no-untyped-def]
    context = fp.Context("binary16", rounding="SR")
    x = context.array([1.5])
    before = context.operation, context.flags
    for call in (
        lambda: x + other, lambda: other + x, lambda: x < other, lambda: np.fmax(x, other),
        lambda: x.__setitem__(0, other), lambda: np.concatenate([x, np.atleast_1d(other)]),
    ):
        with pytest.raises(TypeError, match=r"convert with ctx\.array"):
            call()
    assert (context.operation, context.flags) == before


def test_integers_beyond_binary64_are_no_numbers_of_binary64() -> None:
    x = fp.Context("binary64").array([1.0])
    assert (x + np.array([2**53])).tolist() == [2.0**53]  # to nearest even
    with pytest.raises(TypeError, match="does not hold"):
        x + np.array([2**53 + 1])


def test_products_take_what_is_held() -> None:
    x = fp.Context("binary16").array([[1.0, 2.0], [3.0, 4.0]])
    assert (x @ np.eye(2)).tolist() == (np.eye(2) @ x).tolist() == x.tolist()
    with pytest.raises(TypeError, match=r"convert with ctx\.array"):
        x @ np.full((2, 2), 0.1)
