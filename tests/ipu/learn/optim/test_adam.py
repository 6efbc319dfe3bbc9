"""Adam: an epsilon of zero (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.learn.optim import Adam
from ipu.learn.variables import Variable
from ipu.machine import Device


@pytest.mark.source("S4-42")
def test_an_epsilon_of_zero_divides_a_still_weight_by_zero():
    """With eps = 0 in binary16 a gradient of zero gives 0/0: INV, and NaN weights."""
    device = Device()
    w = Variable(device.from_host([1.0], BINARY16), device, "layer/w")
    with pytest.warns(RuntimeWarning, match="epsilon"):
        Adam(0.01, epsilon=1e-8).apply_gradients([(device.from_host([0.0], BINARY16), w)], {})
    assert np.isnan(w.array.values).all()
    assert device.status.inv
