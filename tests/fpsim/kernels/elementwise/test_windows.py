"""What windows read and write around their arrays; their results are compared on carriers."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.kernels.elementwise.windows import spread_windows, window_maxima

NANS = 0x7F800001, 0x7FC00000, 0xFFFFFFFF
WINDOW = (2, 2), (2, 2), (0, 0)


@pytest.mark.parametrize("channels", [1, 10, 16, 17])
@pytest.mark.parametrize("nan", NANS)
def test_only_a_nan_in_a_window_is_told(nan, channels):
    image = np.zeros((1, 4, 5, channels), np.int32)
    largest = np.empty((1, 2, 2, channels), np.int32)
    positions = np.empty((1, *largest.shape), np.uint8)
    bits = image.view(np.uint32)
    bits[0, :, 4] = nan  # the last column is in no window
    assert window_maxima(image, *WINDOW, False, largest, positions) == 0
    for channel in {0, channels - 1}:
        bits[0, 3, 2, channel] = nan
        assert window_maxima(image, *WINDOW, False, largest, positions) == 1
        bits[0, 3, 2, channel] = 0


@pytest.mark.parametrize("channels", [1, 10, 16, 17, 40])
def test_nothing_beside_the_arrays_is_read_or_written(channels):
    def between(shape, dtype, fill):
        """An array with 64 elements of its buffer on both sides."""
        n = int(np.prod(shape))
        buffer = np.full(n + 128, fill, dtype)
        return buffer, buffer[64 : 64 + n].reshape(shape)

    size = (2, 2, 2, channels)
    _, image = between((2, 5, 4, channels), np.int32, NANS[0])
    image[...] = np.random.default_rng(channels).integers(0, 4, image.shape) << 23
    largest_buffer, largest = between(size, np.int32, 7)
    chosen_buffer, positions = between((1, *size), np.uint8, 7)
    spread_buffer, spread = between(image.shape, np.int32, 7)
    spread[...] = 0
    assert window_maxima(image, *WINDOW, False, largest, positions) == 0
    spread_windows(largest, positions, *WINDOW, spread)
    for buffer in (largest_buffer, chosen_buffer, spread_buffer):
        assert (buffer[:64] == 7).all()
        assert (buffer[-64:] == 7).all()
    windows = image[:, :4].reshape(2, 2, 2, 2, 2, channels)
    np.testing.assert_array_equal(largest, windows.max(axis=(2, 4)))
    largest_only = np.where(windows == largest[:, :, None, :, None], windows, 0)
    np.testing.assert_array_equal(spread[:, :4], largest_only.reshape(2, 4, 4, channels))
    assert not spread[:, 4].any()  # the last row is in no window
