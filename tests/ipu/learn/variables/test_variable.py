"""Variables: shape, format, initial values (law, statistical limits)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32, round_to
from ipu.learn.variables import (
    Variable,
    Variables,
    get_variable,
    variable_scope,
)
from ipu.learn.variables.initialisers import glorot_uniform, he_uniform, uniforms, zeros
from ipu.machine import Device


def test_initial_values_depend_on_seed_and_name_alone():
    one = uniforms((100,), 1, "w")
    assert (one == uniforms((100,), 1, "w")).all()
    assert not (one == uniforms((100,), 2, "w")).any()
    assert not (one == uniforms((100,), 1, "v")).any()
    assert one.min() >= 0
    assert one.max() < 1


@pytest.mark.parametrize(("make", "limit"), [(glorot_uniform, 0.25), (he_uniform, 0.3061862178)])
def test_limits_of_the_usual_initialisers(make, limit):
    values = make((64, 32), 0, "w")
    assert 0.98 * limit < np.abs(values).max() <= limit
    assert not zeros((2,), 0, "w").any()


def test_variables_are_trained_unless_told_otherwise():
    device = Device()
    one = Variable(device.from_host([1.0], BINARY32), device, "w")
    other = Variable(one.array, device, "mean", trainable=False)
    assert (one.trainable, one.needs_gradient) == (True, True)
    assert (other.trainable, other.needs_gradient) == (False, False)


def test_every_format_starts_from_the_same_numbers():
    results = {}
    for fmt in (BINARY16, BINARY32):
        with Variables(Device(), seed=4) as variables, variable_scope("a", use_resource=True):
            results[fmt] = get_variable("w", [8, 8], fmt).array.values
        assert variables["a/w"].dtype == fmt
    exact = glorot_uniform((8, 8), 4, "a/w")
    for fmt, values in results.items():
        assert values.tolist() == round_to(exact, fmt).tolist()


def test_assignment_keeps_shape_and_format(variables):
    with variable_scope("a", use_resource=True):
        variable = get_variable("w", [2], BINARY16)
    with pytest.raises(ValueError, match=r"a/w is binary16 of shape \(2,\), got binary32"):
        variable.assign(variables.device.zeros((2,), BINARY32))
