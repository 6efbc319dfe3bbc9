"""Errors: those of torch where torch refuses too, else a refusal with operation and line (law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, torch

errors = pytest.importorskip("ipu.frontends.torch.errors")
F, nn = torch.nn.functional, torch.nn
ones = torch.ones


def kernel(x, channels, size):
    return F.conv2d(x, ones(4, channels, size, size))


#: What users get wrong.
WRONG = {
    "shapes of a product": lambda: ones(2, 3) @ ones(2, 3),
    "three dimensions in mm": lambda: ones(1, 2, 3).mm(ones(3, 2)),
    "leading dimensions": lambda: torch.bmm(ones(2, 3, 4), ones(3, 4, 2)),
    "shapes of a sum": lambda: ones(2) + ones(3),
    "class": lambda: F.cross_entropy(ones(2, 3), torch.tensor([0, 5])),
    "channels": lambda: kernel(ones(1, 2, 5, 5), 3, 3),
    "large kernel": lambda: kernel(ones(1, 3, 5, 5), 3, 7),
    "large window": lambda: F.avg_pool2d(ones(1, 1, 2, 2), 3),
    "index": lambda: ones(2).index_add_(0, torch.tensor([3]), ones(1)),
    "dimension of softmax": lambda: F.softmax(ones(3), 3),
    "dimension of mean": lambda: ones(2).mean(4),
    "shape of a norm": lambda: F.layer_norm(ones(3), [4]),
    "classes that are no integers": lambda: F.nll_loss(ones(2, 3), ones(2)),
    "view": lambda: ones(3, 4).view(5),
    "half and float": lambda: nn.Linear(3, 2)(ones(1, 3).half()),
    "half and float, dot": lambda: ones(3).half() @ ones(3),
    "half bias": lambda: F.linear(ones(1, 3), ones(2, 3), ones(2).half()),
    "integers take floats": lambda: ones(2).int().add_(ones(2)),
    "integers as out": lambda: torch.add(ones(2), ones(2), out=ones(2).int()),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_those_of_torch(name):
    with pytest.raises((RuntimeError, IndexError)) as expected:
        WRONG[name]()
    with machine(), pytest.raises(type(expected.value)) as got:
        WRONG[name]()
    assert str(got.value) == str(expected.value)
    (note,) = got.value.__notes__
    assert "test_errors.py:" in note


def test_a_half_image_and_a_float_kernel_are_refused_as_in_torch():
    with machine(), pytest.raises(RuntimeError, match=r"Half but found Float|should be the same"):
        F.conv2d(ones(1, 3, 5, 5).half(), ones(4, 3, 3, 3))


def test_looking_for_the_error_of_torch_draws_no_random_numbers():
    x = ones(2).int()
    before = torch.get_rng_state()
    with machine(), pytest.raises(RuntimeError):
        x.add_(ones(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert x.tolist() == [1, 1]


FOREIGN = {
    "sparse product": lambda: torch.sparse.mm(torch.eye(3).to_sparse(), ones(3, 2)),
    "compressed rows": lambda: torch.eye(3).to_sparse_csr() @ ones(3, 2),
    "sparse gradient": lambda: nn.Embedding(5, 2, sparse=True)(torch.tensor([1])).sum().backward(),
    "quantised": lambda: torch.quantize_per_tensor(ones(4), 0.1, 0, torch.qint8),
    "nested": lambda: torch.nested.nested_tensor([ones(2), ones(3)]) * 2.5,
    "mkldnn": lambda: ones(3, 3).to_mkldnn() + 1,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FOREIGN)
def test_tensors_that_are_not_dense_are_refused_with_the_line(name):
    sentence = r"(?s)^aten\..* in layer .*, at .*test_errors.py:\d+, has no rule on the simulated"
    with machine(), pytest.raises(NotImplementedError, match=sentence):
        FOREIGN[name]()
