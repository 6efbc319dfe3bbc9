"""Changes of a program (corners)."""

from __future__ import annotations

import pytest

from ipu.run.changes import NONE, Changes


@pytest.mark.parametrize("scale", [0.0, -2.0, 3.0, float("nan"), float("inf")])
def test_a_loss_scale_is_a_power_of_two(scale):
    with pytest.raises(ValueError, match=r"loss_scale=.* is not a power of two"):
        Changes(loss_scale=scale)


@pytest.mark.parametrize("eps", [0.0, -1e-4, float("nan")])
def test_eps_is_positive(eps):
    with pytest.raises(ValueError, match=r"eps=.* is not positive"):
        Changes(eps=eps)


def test_texts():
    assert str(NONE) == ""
    everything = Changes(2.0**-3, 1e-4, wide_states=True, halves_by_policy=True)
    assert str(everything) == "scale=0.125+eps=0.0001+states=f32"
