"""Codes of binary16, every one of them (exhaustive)."""

from __future__ import annotations

import numpy as np

from fpsim.kernels.by_operation.halves import put_halves
from tests.fpsim.kernels.needs import needs_halves

LIKE = np.zeros(1, np.uint32)


@needs_halves
def test_every_number_has_its_code():
    wanted = np.arange(1 << 16, dtype=np.uint16)
    x = wanted.view(np.float16).astype(np.float32)
    wanted[np.isnan(x)] |= 1 << 9  # numpy's conversion quiets NaN
    codes = np.zeros_like(wanted)
    put_halves(x, LIKE, codes)
    assert codes.tolist() == wanted.tolist()
