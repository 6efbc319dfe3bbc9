"""Enumerations of options (golden)."""

from __future__ import annotations

from ipu.frontends.tensorflow.settings.choices import StochasticRoundingBehaviour


def test_members_by_number_and_by_switch():
    assert [member.name for member in StochasticRoundingBehaviour] == [
        "OFF", "ON", "REPLICA_IDENTICAL_ONLY",
    ]
    off, on = (StochasticRoundingBehaviour.from_bool(value) for value in (False, True))
    assert (off, on) == (StochasticRoundingBehaviour(0), StochasticRoundingBehaviour(1))
