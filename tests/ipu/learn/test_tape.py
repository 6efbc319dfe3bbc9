"""What the tape keeps alive: what backward rules read, and no more (golden)."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from fpsim import BINARY16
from ipu.learn import ops
from ipu.learn.mode import training
from ipu.learn.nn import batch_norm
from ipu.learn.ops import norms
from ipu.learn.tensor import Tensor, nodes
from ipu.learn.variables import Variable, Variables, variable_scope
from ipu.machine import Device


def leaf(device, shape):
    values = np.random.default_rng(1).standard_normal(shape)
    return Variable(device.from_host(values, BINARY16), device, "x")


def test_values_that_no_rule_has_saved_are_freed():
    x = leaf(Device(), (4, 3))
    before = ops.scale(x, factor=2.0)
    seen = weakref.ref(before.array.values)
    after = ops.relu(before)
    saved = weakref.ref(after.array.values)
    last = ops.scale(after, factor=2.0)
    del before, after
    gc.collect()
    assert seen() is None
    assert saved() is not None
    assert len(nodes(last)) == 3


def test_the_tape_forgets_the_centred_values_of_a_norm(monkeypatch):
    device, made = Device(), []
    usual = norms.batch_statistics

    def watched(*args):
        found = usual(*args)
        made.append(weakref.ref(found.centred.values))
        return found

    monkeypatch.setattr(norms, "batch_statistics", watched)
    variables = Variables(device, 0)
    with variables, variable_scope("all", use_resource=True), training() as updates:
        y = batch_norm(Tensor(device.from_host(np.eye(4), BINARY16), device), "norm")
        updates.apply()
    gc.collect()
    assert y.node is not None
    assert "statistics" not in y.node.options
    assert [m() for m in made] == [None]
