"""RMSProp: a start that overflows (golden)."""

from __future__ import annotations

import pytest

from ipu.learn.optim import RMSProp
from tests.ipu.learn.optim.stepping import stepped


def test_a_start_that_overflows_with_the_loss_scale_is_warned_of():
    with pytest.warns(RuntimeWarning, match="initial 65536 overflows in binary16; scale the loss"):
        stepped(RMSProp(0.01, epsilon=1e-4, initial=1.0).for_scaled(256.0))
