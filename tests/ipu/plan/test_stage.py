"""One stage of one micro-batch: inlets, outputs that pass them on, sums as they come (law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu import ops
from ipu.learn.tensor import Tensor, contributions
from ipu.learn.variables import Variable
from ipu.machine import Device
from ipu.plan.stage import Flight, as_values, used_variables

DEVICE = Device()


def array(*values):
    return DEVICE.from_host(np.array(values), BINARY16)


def variable(*values, name="layer/w"):
    return Variable(array(*values), DEVICE, name)


def test_outcomes_of_stages_are_values():
    assert as_values((1, 2)) == as_values([1, 2]) == (1, 2)
    assert as_values(3) == (3,)


def test_a_tensor_that_is_received_twice_is_one_inlet():
    x = ops.scale(variable(1.0), factor=2.0)
    still = Tensor(array(1.0), DEVICE)
    flight = Flight([x, "labels", x, still])
    first, labels, again, constant = flight.arguments
    assert first is again
    assert labels == "labels"
    assert list(flight.inlets) == [0]
    assert not constant.needs_gradient
    assert first.array is x.array


def test_variables_of_a_stage_are_named_in_order_of_use():
    a, b = variable(1.0, name="l/a"), variable(2.0, name="l/b")
    frozen = Variable(array(1.0), DEVICE, "l/c", trainable=False)
    y = ops.multiply(ops.add(a, frozen), b)
    assert used_variables([y, "label"]) == [a, b]


#: Each sum of these in binary16 depends on its order.
TERMS = (1.0, 2.0**-11, 2.0**-11, 2.0**-11)


def uncut(x, weights):
    """Four uses of one tensor, of which three are in the first stage."""
    h = ops.scale(x, factor=1.0)
    early = [ops.scale(h, factor=term) for term in TERMS[1:]]
    late = ops.multiply(h, weights)
    total = late
    for part in early:
        total = ops.add(total, part)
    return h, total


def test_gradients_of_a_cut_tensor_are_added_as_in_the_uncut_model():
    w = variable(1.0, name="l/w")
    x = variable(1.0, name="l/x")
    _, total = uncut(x, w)
    one = DEVICE.context(BINARY16).constant(1.0)
    complete = contributions(total, [x, w], one)

    flight = Flight([ops.scale(x, factor=1.0)])
    h, early = flight.forward(
        lambda h: (h, ops.add(ops.add(ops.scale(h, factor=TERMS[1]), ops.scale(h, factor=TERMS[2])),
                              ops.scale(h, factor=TERMS[3]))), 0
    )
    assert flight.passed_on == {0: 0}
    late = Flight([h, early])
    late.forward(lambda h, early: ops.add(ops.multiply(h, w), early), 0)
    (part,) = late.backward(0, {0: one}, [w])
    assert part[0].values.tolist() == complete[1][0].values.tolist()
    assert set(late.gradients) == {0, 1}
    flight.begin_backward(late.gradients)
    flight.backward(0, late.gradients, [])
    # The product's gradient comes first, then 2^-11 three times: each is lost beside 1.
    assert float(flight.gradients[0]) == 1.0


def test_concurrent_stages_add_to_one_gradient_in_reverse():
    x = ops.scale(variable(1.0), factor=1.0)
    flight = Flight([x])
    one = DEVICE.context(BINARY16).constant(1.0)
    for branch, factor in enumerate((2.0**-11, 1.0)):
        flight.forward(lambda h, factor=factor: (ops.scale(h, factor=factor), h), branch)
    assert flight.passed_on == {1: 0, 3: 0}
    assert len(flight.values) == 4
    seeds = {0: one, 2: one}
    flight.begin_backward(seeds)
    flight.backward(1, seeds, [])
    assert float(flight.gradients[0]) == 1.0
    flight.backward(0, seeds, [])
    assert float(flight.gradients[0]) == 1.0  # 1 + 2^-11 is a tie to even


def test_outputs_that_are_replaced_pass_no_input_on():
    """The loss takes the place of logits that are the stage's input."""
    flight = Flight([ops.scale(variable(2.0), factor=1.0)])
    (logits,) = flight.forward(lambda h: h, 0)
    assert flight.passed_on == {0: 0}
    flight.take(0, (ops.scale(logits, factor=0.5),))
    assert flight.passed_on == {}
    seeds = {0: DEVICE.context(BINARY16).constant(1.0)}
    flight.begin_backward(seeds)
    flight.backward(0, seeds, [])
    assert float(flight.gradients[0]) == 0.5


def test_a_stage_whose_outputs_nobody_uses_has_no_gradients():
    w = variable(2.0)
    flight = Flight([ops.scale(w, factor=1.0)])
    flight.forward(lambda h: ops.scale(h, factor=2.0), 0)
    flight.begin_backward({})
    assert flight.backward(0, {}, [w]) == [[]]
    assert flight.gradients == {}


def test_a_target_is_named_once():
    w = variable(2.0)
    one = DEVICE.context(BINARY16).constant(1.0)
    y = ops.scale(w, factor=2.0)
    flight = Flight([w])
    flight.outputs[0], flight._sizes[0] = (y, y), 2
    with pytest.raises(ValueError, match="targets name a tensor twice"):
        flight.backward(0, {0: one, 1: one}, [])
