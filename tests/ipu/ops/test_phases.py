"""Phases: a dilated convolution is that of a kernel with zeros between its taps (law)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fpsim import BINARY32
from fpsim.records.geometry import geometry
from ipu import ops
from ipu.machine import Device
from ipu.ops.phases import Phases

pairs = st.tuples(st.integers(1, 4), st.integers(1, 4))
sides = st.tuples(st.integers(0, 3), st.integers(0, 3))


def test_extents():
    phases = Phases((9, 10), (2, 3), 1, ((1, 1), (0, 0)), (3, 2))
    assert phases.output == (9 + 2 - 3, 10 - 4)
    assert phases.grid == (4, 5)


@pytest.mark.parametrize(
    ("stride", "dilation", "counts", "inner"),
    [(2, 2, (1, 1), (1, 1)), (2, 3, (3, 3), (2, 2)), ((4, 2), (6, 4), (3, 2), (2, 1))],
)
def test_a_stride_leaves_as_many_phases_as_it_does_not_skip(stride, dilation, counts, inner):
    phases = Phases((30, 30), (2, 2), stride, "VALID", dilation)
    assert (phases.counts, phases.stride) == (counts, inner)


@given(pairs, pairs, st.tuples(sides, sides) | st.sampled_from(["SAME", "VALID"]), st.data())
def test_phases_meet_what_a_stretched_kernel_meets(stride, dilation, padding, data):
    """Small integers: every order of the sums gives the same, forward and backward."""
    groups = data.draw(st.integers(1, 2))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    device = Device()
    image = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    taps = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    try:
        extents = geometry(image, taps, stride, padding, dilation)
    except ValueError:
        assume(False)
    integers = [
        random.integers(-4, 5, shape)
        for shape in ((2, *image, 2), (*taps, 2 // groups, 4), (2, *extents.output, 4))
    ]
    x, w, g = (device.from_host(values, BINARY32) for values in integers)
    wide = device.zeros((*extents.kernel, 2 // groups, 4), BINARY32)
    wide.carrier[:: dilation[0], :: dilation[1]] = w.carrier
    (top, left), (rows, columns) = extents.before, extents.output
    around = tuple(
        (before, max((n - 1) * step + k - size - before, 0))
        for before, n, step, k, size in zip(
            (top, left), (rows, columns), stride, extents.kernel, image, strict=True
        )
    )
    y, saved = ops.conv2d.forward(
        device, x, w, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    expected, context = ops.conv2d.forward(
        device, x, wide, stride=stride, padding=around, groups=groups
    )
    np.testing.assert_array_equal(y.carrier, expected.carrier)
    how = {"stride": stride, "groups": groups}
    slopes = [
        ops.conv2d.pull(i, device, g, saved, padding=padding, dilation=dilation, **how)
        for i in range(2)
    ]
    dx, dw = (ops.conv2d.pull(i, device, g, context, padding=around, **how) for i in range(2))
    np.testing.assert_array_equal(slopes[0].carrier, dx.carrier)
    np.testing.assert_array_equal(slopes[1].carrier, dw.carrier[:: dilation[0], :: dilation[1]])


def test_what_is_cut_is_joined_again():
    x = Device().from_host(np.arange(2 * 5 * 6.0).reshape(2, 5, 6, 1), BINARY32)
    phases = Phases((5, 6), (2, 2), 1, ((1, 1), (1, 1)), (2, 3))
    np.testing.assert_array_equal(phases.joined(phases.cut(x)).carrier, x.carrier)
    y = x[:, : phases.output[0], : phases.output[1]]
    np.testing.assert_array_equal(phases.joined_result(phases.cut_result(y)).carrier, y.carrier)


def test_images_of_another_size_are_refused():
    phases, y = Phases((5, 6), (2, 2), 2, "VALID", 3), Device().zeros((1, 2, 2, 1), BINARY32)
    with pytest.raises(ValueError, match="images of 2x2 where this convolution has 1x2; give"):
        phases.cut_result(y)
