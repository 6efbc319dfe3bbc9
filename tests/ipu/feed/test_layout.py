"""Layouts of queues: law (copies keep values and codes), corners (what is refused and how)."""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from fpsim import BINARY16, E4M3FN, Array, Context
from ipu.feed.layout import Layout, LeafType, copied, leaf_type, stacked
from ipu.learn.tensor import Tensor
from ipu.machine.device import Device

HALF = Context(BINARY16)


class Foreign:
    """A framework's tensor: `detach` and `cpu` first, as PyTorch wants it."""

    def __init__(self, values, ready=False):
        self.values, self.ready = values, ready

    def detach(self):
        return Foreign(self.values, True)

    def cpu(self):
        return self

    def numpy(self):
        assert self.ready
        return self.values


class Eager:
    """TensorFlow's tensor has `numpy` alone."""

    def numpy(self):
        return np.float32([1, 2])


def test_a_copy_shares_no_memory():
    values, array = np.arange(3.0), HALF.array([1, 2])
    for leaf, memory in ((copied(values), values), (copied(array).carrier, array.carrier)):
        assert not np.shares_memory(leaf, memory)
    assert copied(array).context is HALF


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [(1, np.int64, ()), (0.5, np.float64, ()), (True, np.bool_, ()),
     (np.float16(1), np.float16, ()), (np.zeros((2, 3), np.uint8), np.uint8, (2, 3)),
     (Eager(), np.float32, (2,)), (Foreign(np.int32([7])), np.int32, (1,)),
     (np.zeros(2, ml_dtypes.bfloat16), ml_dtypes.bfloat16, (2,))],
)
def test_numbers_and_tensors_of_frameworks_become_ndarrays(value, dtype, shape):
    leaf = copied(value)
    assert isinstance(leaf, np.ndarray)
    assert (leaf.dtype, leaf.shape) == (np.dtype(dtype), shape)


def test_memory_is_contiguous_whatever_the_order_was():
    assert copied(np.zeros((3, 4)).T).flags.c_contiguous


def test_a_tensor_of_the_tape_goes_as_its_array():
    device = Device()
    tensor = Tensor(device.from_host([1.0, 2.0], BINARY16), device)
    leaf = copied(tensor)
    assert isinstance(leaf, Array)
    assert leaf_type(leaf) == LeafType(BINARY16, (2,))


@pytest.mark.parametrize(
    ("value", "words"),
    [("text", "it holds a str"), (None, "it holds a NoneType"), (object(), "it holds a object"),
     (np.array(["a"]), "dtype <U1"), (np.array([{}]), "dtype object"),
     (np.ma.masked_array([1], [True]), "mask")],
)
def test_what_holds_no_numbers_is_refused(value, words):
    with pytest.raises(TypeError, match=words):
        copied(value)


def test_bytes_are_those_of_the_packed_storage():
    layout = Layout({"x": HALF.array(np.zeros((4, 4))), "n": np.zeros(3, np.uint8)})
    element = layout.read({"x": HALF.array(np.ones((4, 4))), "n": np.ones(3, np.uint8)})
    assert element.nbytes == 32 + 3


def test_stacks_of_arrays_keep_format_codes_and_context():
    nan = HALF.wrap(np.float32([np.nan, -0.0]))
    stack = Layout(nan).stack([[nan], [HALF.wrap(np.float32([2.0**-24, np.inf]))]])
    assert isinstance(stack, Array)
    assert stack.context is HALF
    assert stack.codes().tolist() == [nan.codes().tolist(), [1, 0x7C00]]


@pytest.mark.parametrize("leaf", [np.zeros((2, 3), np.float16), HALF.zeros((2, 3))])
def test_no_elements_are_a_stack_too(leaf):
    stack = Layout((leaf, 1)).stack([])
    assert leaf_type(stack[0]) == LeafType(leaf_type(leaf).kind, (0, 2, 3))
    assert stack[1].shape == (0,)


def test_a_stack_has_its_structure():
    class Pair(NamedTuple):
        x: object
        y: object

    layout = Layout(Pair(1, {"a": np.zeros(2)}))
    pairs = [Pair(i, {"a": np.full(2, float(i))}) for i in (5, 6)]
    stack = layout.stack([layout.read(pair).leaves for pair in pairs])
    assert isinstance(stack, Pair)
    assert stack.x.tolist() == [5, 6]
    assert stack.y["a"].tolist() == [[5, 5], [6, 6]]


@pytest.mark.parametrize(
    ("other", "words"),
    [(np.zeros(4, np.float32), r"it is float32 \(4,\), not float32 \(3,\)"),
     (np.zeros(3), r"it is float64 \(3,\), not float32 \(3,\)"),
     (HALF.zeros(3), r"it is binary16 \(3,\), not float32 \(3,\)")],
)
def test_other_shapes_and_types_are_refused(other, words):
    with pytest.raises(ValueError, match=words):
        Layout(np.zeros(3, np.float32)).read(other)


def test_another_format_of_one_storage_is_refused():
    fp8 = Context(E4M3FN).zeros(3)
    with pytest.raises(ValueError, match="it is binary16"):
        Layout(fp8).read(HALF.zeros(3))


def test_elements_without_numbers_are_refused():
    with pytest.raises(ValueError, match=r"float64 \(0, 3\) at \['x'\], without any number"):
        Layout({"x": np.zeros((0, 3))})


def test_a_layout_keeps_no_memory_of_its_first_element():
    layout = Layout(np.zeros(1000))
    assert all(leaf.base is None and leaf.nbytes == 0 for leaf in layout._templates)


def test_stacked_numbers_have_their_dtype():
    leaves = [np.array(i, np.int8) for i in range(3)]
    stack = stacked(leaves, leaf_type(leaves[0]), leaves[0])
    assert (stack.dtype, stack.tolist()) == (np.int8, [0, 1, 2])
