"""Moves of values: memory that is shared, and what is refused (**corners**).

That they agree with numpy is tested in `test_array_functions.py`.
"""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.array_moves import arrays_in, find_storage_format

HALF = fp.Context(fp.BINARY16)
VECTOR = HALF.array([3.0, -1.0, 0.0, 2.5, 3.0, -0.5])


def test_a_view_shares_memory_where_numpys_does() -> None:
    x = HALF.zeros((2, 3))
    for view in (np.reshape(x, 6), np.transpose(x), x.ravel(), np.flip(x), np.expand_dims(x, 0)):
        assert np.shares_memory(view, x)
    for other in (np.copy(x), x.flatten(), np.concatenate([x]), np.zeros_like(x)):
        assert not np.shares_memory(other, x)
    np.copyto(x, 1.5)
    assert (x == 1.5).all()
    with pytest.raises(ValueError, match="beyond binary16"):
        np.copyto(x, 1e6)


def test_options_and_values_that_are_not_offered_are_named() -> None:
    for call, named in (
        (lambda: np.concatenate([VECTOR, VECTOR], dtype=np.float32), "np.concatenate with dtype"),
        (lambda: np.zeros_like(VECTOR, np.int32), "np.zeros_like with dtype"),
        (lambda: np.take(VECTOR, 0, out=np.zeros(())), "np.take with out"),
        (lambda: np.sum(VECTOR, where=VECTOR > 0), "np.sum with where"),
        (lambda: np.max(VECTOR, initial=0.0), "np.max with initial"),
    ):
        with pytest.raises(TypeError, match=f"^{named} is not offered for Array$"):
            call()
    with pytest.raises(TypeError, match=r"array of float64 is not an Array of binary16"):
        np.concatenate([VECTOR, [0.1] @ np.ones((1, 2))])
    with pytest.raises(TypeError, match="never promotes"):
        np.stack([VECTOR, VECTOR, VECTOR, VECTOR.to("bfloat16")])
    with pytest.raises(TypeError, match="mode='linear_ramp' is not offered"):
        np.pad(VECTOR, 1, "linear_ramp")
    with pytest.raises(TypeError, match="decimals=2 is not offered"):
        np.round(VECTOR, 2)


def test_constants_among_values_are_copies() -> None:
    _, one = np.broadcast_arrays(VECTOR, 1.0)
    assert one.values.tolist() == [1.0] * 6
    assert np.atleast_1d(VECTOR, 1.0)[1].context is HALF
    joined = np.append(VECTOR, 1.0)
    joined[-1] = 5.0
    assert float(VECTOR[0] * 1.0) == 3.0


def test_arrays_are_seen_in_nested_sequences() -> None:
    assert len(list(arrays_in([VECTOR, (VECTOR, [VECTOR, 1]), "x", None]))) == 3


@pytest.mark.parametrize(
    ("name", "fmt"),
    [
        ("half", fp.BINARY16), (np.float32, fp.BINARY32), (np.dtype("f8"), fp.BINARY64),
        (fp.TF32, fp.TF32), ("tf32", fp.TF32), (fp.F143.packed, fp.F143), (float, fp.BINARY64),
    ],
)
def test_formats_have_names_and_storage_types(name, fmt) -> None:  # type: ignore[no-untyped-def]
    assert find_storage_format(name) == fmt


@pytest.mark.parametrize("name", [np.uint32, np.complex64, np.uint8])
def test_other_types_are_no_formats(name) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(TypeError, match="no storage type of a format; name the format"):
        find_storage_format(name)
