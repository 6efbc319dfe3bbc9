"""The oracle of convolutions on images whose terms are written down (golden)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fpsim.judge.oracle.conv import ExactConvolution
from fpsim.records.units import find_unit

UNIT = replace(find_unit("V100_F16_F32"), terms=2, calls=1, taps=1)


def image(height: int, width: int, channels: int, first: int = 100) -> np.ndarray:
    """Codes that name their place: first, then one more for each element in C order."""
    n = height * width * channels
    return np.arange(first, first + n).reshape(1, height, width, channels)


def test_terms_go_over_channels_within_a_pass_then_the_kernel_then_channels():
    """Two channels a pass: of three channels 0 and 1 of every position first, then 2 and a gap."""
    convolution = ExactConvolution(UNIT, (1, 1), (0, 0), (1, 1))
    order = list(convolution.order(1, 2, 3))
    assert order == [
        (0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 0, 2), (0, 0, 3), (0, 1, 2), (0, 1, 3),
    ] or order == [
        (0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 0, 2), None, (0, 1, 2), None,
    ]


def test_taps_are_neighbours_along_a_row():
    convolution = ExactConvolution(replace(UNIT, taps=2), (1, 1), (0, 0), (1, 1))
    order = list(convolution.order(1, 3, 1))
    assert order == [(0, 0, 0), (0, 1, 0), (0, 2, 0), None]


def test_an_output_sees_zeros_around_the_image():
    convolution = ExactConvolution(UNIT, (2, 1), (1, 0), (2, 2))
    x = image(2, 2, 2)
    w = np.arange(200, 204).reshape(2, 1, 2, 1)
    assert convolution.forward(x, w, (0, 0, 1, 0)) == [(0, 200), (0, 201), (102, 202), (103, 203)]
    assert convolution.forward(x, w, (0, 1, 0, 0)) == [(104, 200), (105, 201), (0, 202), (0, 203)]


def test_a_group_sees_its_own_channels():
    convolution = ExactConvolution(UNIT, (1, 1), (0, 0), (1, 1), groups=2)
    x = image(1, 1, 4)
    w = np.arange(200, 204).reshape(1, 1, 2, 2)
    assert convolution.forward(x, w, (0, 0, 0, 0)) == [(100, 200), (101, 202)]
    assert convolution.forward(x, w, (0, 0, 0, 1)) == [(102, 201), (103, 203)]


def test_gradients_pair_what_the_forward_pass_paired():
    """x[1] * w[0] is in output 0 and so on: each gradient has the products of its factor."""
    convolution = ExactConvolution(UNIT, (1, 1), (0, 0), (1, 2))
    x, g = image(1, 3, 1), image(1, 2, 1, 300)
    w = np.arange(200, 202).reshape(1, 2, 1, 1)
    terms = [t for t in convolution.input_gradient(g, w, (0, 0, 1, 0)) if 0 not in t]
    assert sorted(terms) == [(300, 201), (301, 200)]
    edge = [t for t in convolution.input_gradient(g, w, (0, 0, 0, 0)) if 0 not in t]
    assert edge == [(300, 200)]
    assert convolution.weight_gradient(x, g, (0, 1, 0, 0)) == [(101, 300), (102, 301)]
