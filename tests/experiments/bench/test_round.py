"""The benchmark of rounding writes what it times (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.elementwise.apply import apply
from fpsim.records.formats import BINARY16
from fpsim.records.rounding import RNE
from fpsim.records.settings import Settings
from ipu.experiments.bench import round as rounding
from ipu.experiments.bench.data import make


@pytest.mark.parametrize("flags", [False, True])
def test_what_is_timed_writes_the_result(flags):
    x, out = make("mixed", 300), np.empty(300, np.float32)
    rounding._call(BINARY16, RNE, flags, x, out)()
    wanted, _ = apply("convert", (x,), Settings(BINARY16))
    np.testing.assert_array_equal(out, wanted)
