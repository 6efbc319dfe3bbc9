"""Names of types: what each accepts and what not (corners)."""

from __future__ import annotations

import typing
from collections.abc import Sequence

import numpy as np
import pytest

from fpsim.records import types


def element(alias):
    """The scalar type of an array's name."""
    _, dtype = typing.get_args(alias)
    (scalar,) = typing.get_args(dtype)
    return typing.get_origin(scalar) or scalar


@pytest.mark.parametrize(
    ("alias", "accepted", "refused"),
    [
        (types.Carrier, [np.float32, np.float64], [np.uint32, np.bool_]),
        (types.ElementFlags, [np.uint8], [np.int8, np.uint32]),
        (types.Words, [np.uint32], [np.uint64, np.int32]),
        (types.Offsets, [np.int64], [np.int32, np.uint64]),
    ],
    ids=str,
)
def test_an_array_holds_elements_of_its_kind(alias, accepted, refused):
    assert typing.get_origin(alias) is np.ndarray
    assert all(issubclass(kind, element(alias)) for kind in accepted)
    assert not any(issubclass(kind, element(alias)) for kind in refused)


def test_shapes_and_indices_are_tuples_of_integers():
    for alias in (types.Shape, types.Index):
        assert (typing.get_origin(alias), typing.get_args(alias)) == (tuple, (int, ...))
    assert set(typing.get_args(types.Axis)) == {int, types.Shape, type(None)}


def test_operands_are_asked_for_by_index():
    (index,), operands = typing.get_args(types.OperandsAt)
    assert index == types.Index
    assert typing.get_origin(operands) is Sequence


def test_every_name_is_exported():
    names = {n for n in vars(types) if n[0].isupper()} - {"Any", "Callable", "NDArray", "Sequence"}
    assert names == set(types.__all__)
