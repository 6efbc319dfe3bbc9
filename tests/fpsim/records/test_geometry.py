"""Extents of a convolution beside a list of its windows (exhaustive), and bad padding (corners)."""

from __future__ import annotations

import itertools

import pytest

from fpsim.records.geometry import Geometry, geometry


def windows(n: int, k: int, step: int, before: int, after: int) -> int:
    """Windows that lie inside n elements with zeros around them, one by one."""
    return sum(1 for first in range(0, before + n + after, step) if first + k <= before + n + after)


@pytest.mark.parametrize(
    ("n", "k", "step"), list(itertools.product(range(1, 9), range(1, 5), range(1, 4)))
)
def test_outputs_are_the_windows_that_fit(n: int, k: int, step: int) -> None:
    same = geometry((n, 9), (k, 3), (step, 1), "SAME")
    assert same.output == (-(-n // step), 9)
    needed = max((same.output[0] - 1) * step + k - n, 0)
    assert same.before == (needed // 2, 1)
    assert windows(n, k, step, needed // 2, needed - needed // 2) == same.output[0]
    for before, after in itertools.product(range(3), repeat=2):
        count = windows(n, k, step, before, after)
        if not count:
            continue
        sides = geometry((9, n), (3, k), (1, step), ((0, 0), (before, after)))
        assert (sides.before, sides.output) == ((0, before), (7, count))
    if n >= k:
        valid = geometry((n, n), (k, k), step, "VALID")
        assert valid.output == (windows(n, k, step, 0, 0),) * 2
        assert (valid.before, valid.stride) == ((0, 0), (step, step))


def test_the_gradient_to_the_input_is_a_convolution_of_the_gradient() -> None:
    forward = geometry((7, 6), (3, 2), (2, 1), ((1, 1), (0, 1)))
    assert forward.turned() == Geometry((4, 6), (3, 2), (1, 1), (1, 1), (7, 6), (2, 1))


def test_a_frame_holds_what_windows_reach() -> None:
    """Unlike sides: 3 rows and 5 columns of windows of 4x2, 2 and 3 apart."""
    window = geometry((8, 14), (4, 2), (2, 3), "VALID")
    assert window.output == (3, 5)
    assert window.line == 4 * 3 + 2
    assert window.framed == (2 * 2 + 4) * window.line


def test_lists_are_as_good_as_tuples() -> None:
    expected = geometry((9, 8), (3, 2), (2, 2), ((1, 1), (0, 1)), dilation=(1, 1))
    assert geometry((9, 8), (3, 2), 2, [[1, 1], [0, 1]]) == expected  # type: ignore[arg-type]
    assert geometry((9, 8), (3, 2), [2, 2], [[1, 1], [0, 1]], [1, 1]) == expected  # type: ignore[arg-type]
    valid = geometry((9, 8), (3, 2), (2, 2), "VALID", dilation=(1, 1))
    assert geometry((9, 8), (3, 2), [2, 2], "VALID") == valid  # type: ignore[arg-type]
    assert geometry((9, 8), (3, 2), 2, "VALID", [1, 1]) == valid  # type: ignore[arg-type]


@pytest.mark.parametrize("stride", [0, -1, True, 1.0, (1, 0), (1, 2, 3), "2", (1, True)])
def test_what_is_no_stride_is_refused(stride: object) -> None:
    with pytest.raises(ValueError, match=r"stride=.* is no step; use an integer from 1 on"):
        geometry((8, 8), (3, 3), stride, "SAME")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "padding", ["same", 1, ((1, 1),), ((1, 1), (0, -1)), ((1, 1), (0, 1.0)), ((1, 1), 1), None]
)
def test_what_is_no_padding_is_refused(padding: object) -> None:
    with pytest.raises(ValueError, match=r"padding=.* is not known; use SAME, VALID or"):
        geometry((8, 8), (3, 3), 1, padding)  # type: ignore[arg-type]


@pytest.mark.parametrize("kernel", [(9, 3), (3, 9)])
def test_a_kernel_beyond_the_padded_image_is_refused(kernel: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="does not fit into 8x8 with padding='VALID'"):
        geometry((8, 8), kernel, 1, "VALID")


def test_a_known_stride_does_not_let_its_equals_of_another_type_pass():
    assert geometry((5, 5), (3, 3), 1, "SAME") is geometry((5, 5), (3, 3), 1, "SAME")
    for stride in (True, 1.0, (True, 1)):
        with pytest.raises(ValueError, match="is no step"):
            geometry((5, 5), (3, 3), stride, "SAME")
