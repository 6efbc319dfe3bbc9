"""Sites given back: policies by role, and the control's units in the last place (corners)."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fpsim as fp
from fpsim.records.formats import BINARY16, BINARY32
from ipu.learn.policy import Policy
from ipu.run.restoring import (
    BACKWARD,
    FORWARD,
    NOTHING_RESTORED,
    PARAMETERS,
    SUMS,
    UPDATE,
    PrecisionSite,
    Restoring,
    nudged,
    sites_of,
)

LOW = Policy.parse("p=f16,c=f16,part=f16")


def restored(*sites):
    return Restoring(frozenset(PrecisionSite(*site) for site in sites))


@pytest.mark.parametrize(("direction", "role"), [
    ("forward", FORWARD), ("evaluation", FORWARD), ("recompute", FORWARD), ("backward", BACKWARD),
])
def test_a_role_is_given_back_in_its_directions_alone(direction, role):
    restoring = restored(("fc", role))
    assert restoring.policy(LOW, "fc", direction).activations == BINARY32
    other = "backward" if role == FORWARD else "forward"
    assert restoring.policy(LOW, "fc", other) == LOW
    assert restoring.policy(LOW, "head", direction) == LOW


def test_parameters_and_partial_sums_leave_the_format_of_activations():
    parameters = restored(("fc", PARAMETERS)).policy(LOW, "fc", "optimizer")
    assert (parameters.param, parameters.compute) == (BINARY32, BINARY16)
    sums = restored(("fc", SUMS)).policy(LOW, "fc", "forward")
    assert (sums.partials, sums.compute) == (BINARY32, BINARY16)


def test_updates_are_widened_by_their_site():
    assert restored(("optimizer", UPDATE)).widens_updates
    assert not NOTHING_RESTORED.widens_updates


def test_control_sites_are_by_direction():
    moved = Restoring(moved=frozenset([PrecisionSite("fc", BACKWARD)]))
    assert moved.altering("fc", "backward") is nudged
    assert moved.altering("fc", "forward") is None
    assert NOTHING_RESTORED.altering("fc", "backward") is None


def test_a_dose_rounds_what_its_sites_give_in_the_window_alone():
    site = PrecisionSite("fc", FORWARD)
    dosed = Restoring(frozenset([site]), steps=(2, 4), dose=fp.Format.custom(8, 3))
    values = np.float32([1.1, -1.1, 1.125, 1e30])
    assert dosed.altering("fc", "forward", 1) is None
    assert dosed.altering("fc", "forward", 4) is None
    assert dosed.altering("fc", "backward", 2) is None
    assert dosed.altering("head", "forward", 2) is None
    alter = dosed.altering("fc", "forward", 2)
    # Three digits, ties to even: steps of 1/4 from 1 on.
    assert alter(values, BINARY32)[:3].tolist() == [1.0, -1.0, 1.0]
    assert alter(values, BINARY32)[3] == math.ldexp(round(1e30 / 2.0**97), 97)


def test_every_second_number_moves_to_the_next_of_its_format():
    """On all positive finite codes but the largest, by numpy's own binary16."""
    codes = np.arange(1, 0x7BFF, dtype=np.uint16)
    values = codes.view(np.float16).astype(np.float32)
    after = nudged(np.repeat(values, 2), BINARY16).astype(np.float16).view(np.uint16)
    assert np.array_equal(after[1::2], codes)
    assert np.array_equal(after[::2], codes + 1)


def test_numbers_without_a_next_one_stay():
    values = np.float32([0, 9, np.nan, 9, np.inf, 9, 65504, 9])
    assert np.array_equal(nudged(values, BINARY16), values, equal_nan=True)


def test_sites_are_those_of_narrow_roles():
    layers = {"fc": {"forward": {}, "backward": {}}, "head": {"evaluation": {}},
              "optimizer": {"optimizer": {}}}
    report = {"layers": layers, "parameters": {"fc": 4}}
    names = [str(site) for site in sites_of(report, LOW)]
    assert names == ["fc (forward)", "fc (backward)", "fc (sums)", "fc (parameters)",
                     "head (forward)", "head (backward)", "optimizer (update)"]
    assert sites_of(report, Policy.parse("p=f32,c=f32")) == []
