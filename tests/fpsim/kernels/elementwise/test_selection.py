"""What the loops of selection tell of NaNs; their results are compared on carriers."""

from __future__ import annotations

import numpy as np

from fpsim.kernels.elementwise.selection import keep_least


def test_any_nan_is_told():
    for bits in (0x7F800001, 0x7FC00000, 0xFFFFFFFF):
        x = np.zeros(20, np.uint32)
        x[17] = bits
        out = np.empty(20, np.float32)
        assert keep_least(x.view(np.float32), np.float32(1), out) == 1
        assert keep_least(x.view(np.float32)[:17], np.float32(1), out[:17]) == 0
