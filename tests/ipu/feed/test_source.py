"""Sources: what can be read again, from where, and which elements are refused (corners)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.feed.batches import Batches
from ipu.feed.data import Images
from ipu.feed.source import Source


class Tensor:
    """A framework's tensor."""

    def __init__(self, values):
        self._values = np.asarray(values, np.float32)

    def numpy(self):
        return self._values


class DataLoader:
    """PyTorch's: lists of tensors, again for each pass."""

    def __init__(self, n):
        self._n = n

    def __len__(self):
        return self._n

    def __iter__(self):
        return iter([[Tensor([i, i]), Tensor(i)] for i in range(self._n)])


class Indexed:
    """The old protocol of sequences."""

    def __getitem__(self, i):
        if i >= 4:
            raise IndexError
        return float(i)


def values(source, position=0, n=None):
    elements = [source.layout.value(e.leaves) for e in source.elements(position)]
    return elements[:n]


def numbers():
    yield from (0.0, 1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    "data", [[0.0, 1.0, 2.0, 3.0], (0.0, 1.0, 2.0, 3.0), np.arange(4.0), Indexed(), numbers,
             lambda: [0.0, 1.0, 2.0, 3.0], dict.fromkeys((0.0, 1.0, 2.0, 3.0)).keys()],
)
def test_whatever_can_be_read_again_is_read_from_any_position(data):
    source = Source(data)
    for position in (0, 3, 1, 4, 9):
        assert [float(x) for x in values(source, position)] == [0, 1, 2, 3][position:]


def test_loaders_and_data_sets_of_frameworks_need_no_import_of_them():
    pairs = values(Source(DataLoader(3)))
    assert [(x.tolist(), float(y)) for x, y in pairs] == [([i, i], i) for i in (0, 1, 2)]
    assert isinstance(pairs[0], list)


@pytest.mark.parametrize("data", [iter([1.0]), numbers(), map(float, "12")])
def test_what_can_be_read_once_only_is_refused(data):
    with pytest.raises(TypeError, match="which can be read once only; pass what it iterates over"):
        Source(data)


@pytest.mark.parametrize("data", [5, None, 1.5])
def test_what_has_no_elements_is_refused(data):
    with pytest.raises(TypeError, match=f"a {type(data).__name__}, which has no elements"):
        Source(data)


def test_a_source_with_a_position_is_set_to_it():
    batches = Batches(Images(np.arange(6.0)[:, np.newaxis], np.arange(6)), 2, seed=1)
    expected = [next(batches)[1].tolist() for _ in range(8)]
    assert batches.position == 8
    source = Source(batches)
    assert source.position == 8
    elements = source.elements(5)
    assert [next(elements).leaves[1].tolist() for _ in range(3)] == expected[5:]
    assert Source([1.0]).position == 0


def test_a_generator_is_closed_with_the_elements():
    closed = []

    def data():
        try:
            while True:
                yield 1.0
        finally:
            closed.append(True)

    held = data()  # so that no count of references closes it
    elements = Source(lambda: held).elements(0)
    next(elements)
    elements.close()
    assert closed == [True]


def test_a_ragged_last_batch_is_refused_at_its_place():
    source = Source([np.zeros((4, 2)), np.zeros((4, 2)), np.zeros((3, 2))])
    elements = source.elements(1)
    next(elements)
    sentence = (
        r"element 2 of the data set cannot be fed: it is float64 \(3, 2\), not float64 \(4, 2\)"
        r"\. .*drop_remainder=True"
    )
    with pytest.raises(ValueError, match=sentence):
        next(elements)


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [([1.0, (1.0, 2.0)], TypeError, r"element 1 .*it is tuple\(0: leaf, 1: leaf\), not leaf"),
     (["a"], TypeError, "element 0 .*it holds a str"),
     ([np.zeros((0, 3))], ValueError, "element 0 .*without any number")],
)
def test_other_elements_are_refused(data, error, words):
    with pytest.raises(error, match=words):
        list(Source(data).elements(0))


def test_the_layout_of_the_first_pass_holds_for_the_next():
    data = [1.0]
    source = Source(data)
    list(source.elements(0))
    data[0] = 1
    with pytest.raises(ValueError, match="it is int64"):
        list(source.elements(0))
