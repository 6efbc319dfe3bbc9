"""What the loops of selection tell of NaNs; their results are compared on carriers."""

from __future__ import annotations

import numpy as np

from fpsim.kernels.elementwise.selection import keep_least, window_maxima


def test_any_nan_is_told():
    for bits in (0x7F800001, 0x7FC00000, 0xFFFFFFFF):
        x = np.zeros(20, np.uint32)
        x[17] = bits
        out = np.empty(20, np.float32)
        assert keep_least(x.view(np.float32), np.float32(1), out) == 1
        assert keep_least(x.view(np.float32)[:17], np.float32(1), out[:17]) == 0
        image, largest = x.view(np.int32).reshape(1, 4, 5, 1), np.empty((1, 2, 2, 1), np.int32)
        chosen = np.zeros((1, 1, 2, 2, 1), np.uint8)
        window = (2, 2), (2, 2), (0, 0), False
        assert window_maxima(image, *window, largest, chosen) == 1
        image[0, 3, 2, 0] = 0  # the last column is in no window
        assert window_maxima(image, *window, largest, np.zeros_like(chosen)) == 0
