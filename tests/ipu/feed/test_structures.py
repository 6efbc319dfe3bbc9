"""Nested structures: law (taking apart and putting together), corners (what is a leaf)."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu.feed.structures import LEAF, leaves_of, rebuild, structure_of


class Pair(NamedTuple):
    x: object
    y: object


@dataclass(frozen=True, slots=True)
class Sample:
    image: object
    label: object


@dataclass
class Checked:
    numbers: list

    def __post_init__(self):
        if len(self.numbers) != 2:
            raise ValueError("two numbers")


nested = st.recursive(
    st.integers(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.builds(Pair, inner, inner),
        st.builds(Sample, inner, inner),
    ),
    max_leaves=12,
)


@given(nested)
def test_taking_apart_and_putting_together_is_the_identity(value):
    structure = structure_of(value)
    leaves = leaves_of(value, structure)
    assert rebuild(structure, leaves) == value
    assert len(structure.paths) == len(leaves)
    names = {"Pair": Pair, "Sample": Sample}
    for path, leaf in zip(structure.paths, leaves, strict=True):
        assert eval(f"value{path}", names, {"value": value}) == leaf


@given(nested, nested)
def test_another_structure_is_refused(value, other):
    structure = structure_of(value)
    if structure_of(other) == structure:
        assert len(leaves_of(other, structure)) == len(leaves_of(value, structure))
        return
    try:
        leaves = leaves_of(other, structure)
    except TypeError:
        return
    # only dictionaries with equal keys in another order are of one structure all the same
    assert sorted(leaves) == sorted(leaves_of(other, structure_of(other)))
    assert sorted(structure.paths) == sorted(structure_of(other).paths)


def test_dictionaries_are_read_in_the_order_of_the_first():
    structure = structure_of({"b": 1, "a": 2})
    assert leaves_of({"a": 20, "b": 10}, structure) == [10, 20]
    assert list(rebuild(structure, [1, 2])) == ["b", "a"]


@pytest.mark.parametrize("value", [{"a": 1}, {"a": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}, [1, 2]])
def test_other_keys_are_another_structure(value):
    with pytest.raises(TypeError, match=r"not dict\(a: leaf, b: leaf\)"):
        leaves_of(value, structure_of({"a": 1, "b": 2}))


def test_the_sentence_says_where():
    with pytest.raises(
        TypeError, match=r"it is tuple\(0: leaf, 1: leaf\) at \['pair'\]\[0\], not leaf"
    ):
        leaves_of({"pair": [(1, 2)]}, structure_of({"pair": [1]}))


@pytest.mark.parametrize("value", [1, "text", None, np.zeros(3), np.float32(1), Pair, Sample])
def test_everything_else_is_a_leaf(value):
    assert structure_of(value) is LEAF
    assert leaves_of(value, LEAF) == [value] or isinstance(value, np.ndarray)
    assert LEAF.paths == ("",)


@pytest.mark.parametrize("value", [OrderedDict(a=1), MappingProxyType({"a": 1})])
def test_every_mapping_is_a_dictionary(value):
    assert rebuild(structure_of(value), [2]) == {"a": 2}


def test_a_named_tuple_is_not_a_tuple():
    with pytest.raises(TypeError, match="it is tuple"):
        leaves_of((1, 2), structure_of(Pair(1, 2)))


def test_a_stack_need_not_pass_the_checks_of_an_element():
    structure = structure_of(Checked([1, 2]))
    stack = rebuild(structure, [[1, 3, 5], [2, 4, 6]])
    assert isinstance(stack, Checked)
    assert stack.numbers == [[1, 3, 5], [2, 4, 6]]
