"""A format may be text wherever training takes a Format (law)."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, Flags
from fpsim.records.units import find_unit
from ipu import ops
from ipu.learn import Policy
from ipu.learn.accumulate import Accumulation
from ipu.learn.metrics import RunningLoss
from ipu.learn.optim import SGD, Adam, RMSProp
from ipu.learn.scopes import partials_type
from ipu.learn.variables import Variable, Variables, get_variable, variable_scope
from ipu.machine import MK2, Device
from ipu.machine.control import ALL_ON, FpCtl, choices, status, status_words, traps
from ipu.ops.fp8 import quarters, scale_for

OPERANDS = np.arange(16.0).reshape(4, 4) / 7


def product(**formats):
    device = Device()
    x = device.from_host(OPERANDS, BINARY16)
    result, _ = ops.matmul.forward(device, x, x, **formats)
    return result.format.name, result.tolist()


def in_scope(fmt):
    device = Device()
    with partials_type(fmt, device):
        return device.partials


def variable(fmt):
    with Variables(Device()), variable_scope("layer", use_resource=True):
        return get_variable("w", [2], fmt).dtype


def variable_of_scope(fmt):
    with Variables(Device()), variable_scope("layer", use_resource=True, dtype=fmt):
        return get_variable("w", [2]).dtype


def accumulator(dtype):
    with Variables(Device()), variable_scope("layer", use_resource=True):
        return Accumulation(2, dtype=dtype).format_for(get_variable("w", [2]))


def stepped(rule, fmt):
    device = Device()
    w = Variable(device.from_host(OPERANDS, BINARY32), device, "layer/w")
    gradients = [(device.from_host(OPERANDS / 3, BINARY32), w)]
    slots = rule(0.25, format=fmt).apply_gradients(gradients, {})
    return w.array.tolist(), [x.format for x in slots["layer/w"]]


#: The device takes words for its partials too, and names all that it takes.
UNKNOWN = "=binry16 is not a format of partials|='binry16' is not known. Did you mean 'binary16'"

#: Entrances of a format, each as a function of it.
ENTRANCES = {
    "Policy, param and compute": lambda f: Policy(param=f, compute=f),
    "Policy, partials": lambda f: Policy(BINARY16, BINARY16, partials=f),
    "Policy, output": lambda f: Policy(BINARY32, BINARY16, output=f).output,
    "Policy, accumulator": lambda f: Policy(BINARY32, BINARY16, accumulator=f).accumulator,
    "partials_type": in_scope,
    "get_variable": variable,
    "variable_scope": variable_of_scope,
    "Accumulation": accumulator,
    "Accumulation, of a function": lambda f: accumulator(lambda _: f),
    "SGD": lambda f: stepped(partial(SGD, momentum=0.5), f),
    "Adam": lambda f: stepped(partial(Adam, epsilon=1e-3), f),
    "RMSProp": lambda f: stepped(partial(RMSProp, epsilon=1e-3), f),
    "RunningLoss": lambda f: RunningLoss(Device(), f).total.format,
    "ops.matmul, partials": lambda f: product(partials=f),
    "ops.matmul, to": lambda f: product(to=f),
    "ops.matmul, both": lambda f: product(partials=f, to=BINARY32),
    "Target.peak": lambda f: MK2.peak(f, f),
    "quarters": lambda f: quarters(Device(), Device().from_host([1.0], BINARY16), f).values.format,
    "control.choices": lambda f: choices(ALL_ON, f),
    "control.traps": lambda f: traps(FpCtl(inv=True, nanoo=True), f),
    "control.status": lambda f: status(Flags.OVERFLOW, ALL_ON, f),
    "control.status_words": lambda f: status_words(ALL_ON, f),
    "Target.instruction": lambda f: MK2.instruction(find_unit("AMP_F16_F32"), f),
    "Target.forms": lambda f: MK2.forms(find_unit("AMP_F16_F32"), f),
    "scale_for": lambda f: scale_for(Device().from_host([70000.0], BINARY32), f),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_a_name_is_as_good_as_the_format(name):
    enter = ENTRANCES[name]
    assert enter("binary16") == enter("FP16") == enter("half") == enter(BINARY16)
    with pytest.raises(ValueError, match=UNKNOWN):
        enter("binry16")
