"""Phases: a dilated convolution is that of a kernel with zeros between its taps (law)."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY32
from ipu.frontends.arrays.phases import Phases
from ipu.machine import Device


def test_extents():
    phases = Phases((9, 10), (2, 3), (3, 2), (1, 0))
    assert phases.output == (9 + 2 - 3, 10 - 4)
    assert phases.grid == (4, 5)


def test_phases_meet_what_a_stretched_kernel_meets():
    """Small integers: every order of the sums gives the same."""
    device, random = Device(), np.random.default_rng(0)
    x = device.from_host(random.integers(-4, 5, (2, 7, 8, 3)), BINARY32)
    w = device.from_host(random.integers(-4, 5, (2, 3, 3, 4)), BINARY32)
    wide = device.zeros((3, 5, 3, 4), BINARY32)
    wide.carrier[::2, ::2] = w.carrier
    phases = Phases((7, 8), (2, 3), (2, 2), (1, 2))
    ours = phases.joined_result(device.conv2d(phases.cut(x), w, stride=1, padding="VALID"))
    expected = device.conv2d(x, wide, stride=1, padding=((1, 1), (2, 2)))
    np.testing.assert_array_equal(ours.carrier, expected.carrier)


def test_what_is_cut_is_joined_again():
    x = Device().from_host(np.arange(2 * 5 * 6.0).reshape(2, 5, 6, 1), BINARY32)
    phases = Phases((5, 6), (2, 2), (2, 3), (1, 1))
    np.testing.assert_array_equal(phases.joined(phases.cut(x)).carrier, x.carrier)
