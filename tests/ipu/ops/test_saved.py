"""What the tape keeps (exhaustive in small formats; law)."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext

import numpy as np
import pytest

import fpsim as fp
from ipu import ops
from ipu.experiments.training.networks import mnist
from ipu.learn.mode import training
from ipu.learn.optim import SGD
from ipu.learn.policy import Policy
from ipu.learn.tensor import Tensor, gradients, nodes, saved_bytes
from ipu.learn.train import Trainer
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl
from ipu.ops.saved import Packed, Reading, memory, packed, packing, positive_keys


@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.BFLOAT16, fp.E4M3FN, fp.F143, fp.E5M2], ids=str)
def test_every_code_comes_back_as_it_was(fmt):
    context = fp.Context(fmt)
    codes = np.arange(fmt.n_codes).astype(fmt.code_dtype).repeat(max(1, 2048 // fmt.n_codes))
    x = context.unpack(codes.reshape(2, -1).view(fmt.packed))
    assert packed(x) is x
    with packing():
        stored = packed(x)
    assert isinstance(stored, Packed)
    assert memory(stored)[1] == x.storage_bytes
    again = stored.array()
    assert again.context is context
    assert again.shape == x.shape
    assert np.array_equal(again.carrier.view(np.uint32), x.carrier.view(np.uint32))


@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.BFLOAT16, fp.E4M3FN, fp.F143, fp.E5M2], ids=str)
@pytest.mark.parametrize("codes", [False, True])
def test_what_is_kept_tells_where_it_is_positive(fmt, codes):
    every = np.arange(fmt.n_codes).astype(fmt.code_dtype).repeat(max(1, 2048 // fmt.n_codes))
    x = fp.Context(fmt).unpack(every.view(fmt.packed))
    with packing() if codes else nullcontext():
        saved = (packed(x),)
    for reader in (saved, Reading(saved))[codes:]:
        keys, most = positive_keys(reader, 0)
        assert (keys.dtype == fmt.code_dtype) == codes
        assert (((keys > 0) & (keys <= most)) == (x.values > 0)).all()


def test_numbers_and_views_are_told_positive_in_their_shape():
    half = fp.Context(fp.BINARY16)
    for x in (half.array(2.0), half.array([[1.0, -1.0, 0.0], [-2.0, 3.0, 4.0]]).T):
        keys, most = positive_keys((x,), 0)
        assert keys.shape == x.shape
        assert (((keys > 0) & (keys <= most)) == (x.values > 0)).all()


def test_what_codes_would_not_shorten_is_kept_as_it_is():
    half, single = fp.Context(fp.BINARY16), fp.Context(fp.BINARY32)
    few, wide = half.zeros(10), single.zeros(4096)
    turned = half.zeros((64, 64)).T
    with packing():
        for x in (few, wide, turned):
            assert packed(x) is x
    assert tuple(Reading((few, 3, None))) == (few, 3, None)


@pytest.fixture
def unpackings(monkeypatch):
    """Shapes of the arrays that come back from their codes."""
    shapes, array = [], Packed.array
    monkeypatch.setattr(
        Packed, "array", lambda packed: shapes.append(packed.stored.shape) or array(packed)
    )
    return shapes


def test_a_rule_unpacks_what_it_reads_once(unpackings):
    half = fp.Context(fp.BINARY16)
    with packing():
        saved = Reading((packed(half.zeros(2048)), 3, packed(half.zeros(4096))))
    assert len(saved) == 3
    assert saved[1] == 3
    assert unpackings == []
    values = saved[1:][-1]
    assert unpackings == [(4096,)]
    assert saved[2] is values
    assert [getattr(item, "shape", None) for item in saved] == [(2048,), None, (4096,)]
    assert unpackings == [(4096,), (2048,)]
    with pytest.raises(IndexError):
        saved[3]


def test_a_gradient_to_images_is_computed_without_them(unpackings):
    device = Device()
    images = Variable(device.zeros((1, 32, 32, 4), fp.BINARY16), device, "images")
    w = Variable(device.zeros((3, 3, 4, 8), fp.BINARY16), device, "w")
    with packing():
        node = ops.conv2d(ops.relu(images), w).node
    assert node is not None
    to_images, to_weights = node.primitive.vjps
    gradient, saved = device.zeros((1, 32, 32, 8), fp.BINARY16), Reading(node.saved)
    assert to_images(device, gradient, saved, **node.options).shape == images.shape
    assert unpackings == []
    assert to_weights(device, gradient, saved, **node.options).shape == w.shape
    assert unpackings == [images.shape]


def test_a_value_that_two_rules_save_is_kept_once_and_variables_as_they_are():
    device = Device()
    weight = Variable(device.from_host(np.eye(64), fp.BINARY16), device, "weight")
    x = Tensor(device.zeros((64, 64), fp.BINARY16), device)
    with training():
        hidden = ops.relu(ops.matmul(x, weight))
        result = ops.matmul(hidden, weight)
    first, second = nodes(result)[1], nodes(result)[0]
    assert isinstance(first.saved[0], Packed)
    assert second.saved[0] is first.saved[0]
    assert second.saved[1] is weight.array
    assert saved_bytes(result) == sum(t.array.storage_bytes for t in (x, weight, hidden))


def test_a_packed_array_computes_as_the_array_does():
    half = fp.Context(fp.BINARY16)
    x = half.array(np.linspace(-3, 3, 4096).reshape(64, 64))
    with packing():
        stored = packed(x)
        assert packed(stored) is stored
    assert (stored.shape, stored.size, stored.ndim, len(stored)) == ((64, 64), 4096, 2, 64)
    assert stored.format == x.format
    assert np.array_equal((stored * stored).values, (x * x).values)
    with pytest.raises(ValueError, match="read-only"):
        stored.values[0] = 1


def test_in_training_a_tape_is_read_once_and_gradients_wait_as_codes():
    device = Device()
    x = Tensor(device.zeros((64, 64), fp.BINARY16), device)
    one = device.from_host(np.ones((64, 64)), fp.BINARY16)

    def gradient():
        weight = Variable(device.from_host(np.eye(64), fp.BINARY16), device, "weight")
        result = ops.relu(ops.matmul(ops.relu(weight), x))
        (summand,) = gradients(result, [weight], one)
        return result, summand

    stored, plain = gradient()
    with training():
        read, waiting = gradient()
    assert not isinstance(plain, Packed)
    assert isinstance(waiting, Packed)
    assert np.array_equal(waiting.values, plain.values)
    assert saved_bytes(stored) > 0
    assert saved_bytes(read) == 0


def test_an_update_that_nobody_observes_holds_new_values_alone(monkeypatch):
    changes, step = [], SGD._step

    def watched(self, *args):
        update, slots = step(self, *args)
        assert [c() for c in changes] == [None] * len(changes)
        changes.append(weakref.ref(update.change.carrier))
        return update, slots

    monkeypatch.setattr(SGD, "_step", watched)
    device = Device()
    device.in_one_call = False  # no update waits for others
    pairs = [
        (device.from_host([2.0], fp.BINARY32), Variable(device.zeros((1,), fp.BINARY32), device, n))
        for n in "ab"
    ]
    SGD(0.5).apply_gradients(pairs, {})
    assert [v.array.values.tolist() for _, v in pairs] == [[-1.0], [-1.0]]
    assert len(changes) == 2


def test_a_training_step_leaves_nothing_for_the_garbage_collector():
    """Memory of products is free as soon as they are done.

    What another thread, or a kernel that is loaded, leaves behind is not there in each of three.
    """
    policy = Policy(fp.BINARY16, fp.BINARY16)
    trainer = Trainer(mnist, SGD(0.01, momentum=0.9), policy=policy, control=FpCtl(esr=True))
    images, labels = np.zeros((4, 28, 28, 1), np.float32), np.zeros(4, np.int64)
    trainer.step(images, labels)
    gc.collect()
    gc.disable()
    left = []
    try:
        for _ in range(3):
            trainer.step(images, labels)
            left.append(gc.collect())
    finally:
        gc.enable()
    assert min(left) == 0, left
