"""The table of updates: each equation once, used by everyone, and what a name refuses."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16
from ipu.learn.optim import SGD, Adam, RMSProp
from ipu.machine import Device
from ipu.ops.updates import UPDATES, find_update


@pytest.mark.parametrize("row", UPDATES.values(), ids=list(UPDATES))
def test_a_row_says_what_it_rounds_and_where_it_comes_from(row):
    assert row.name in UPDATES
    assert row.rounding
    assert re.search(r"\.(cc|cpp|hpp|py)\b", row.source)
    assert "unscale" in row.numbers or row.numbers


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="update='adamw' is not known; use one of descent, mom"):
        find_update("adamw")


def r(x):
    return np.float16(x).astype(np.float64)


def test_numbers_are_constants_of_the_format():
    """Momentum: every operation rounded once from binary64, with rounded constants."""
    rng = np.random.default_rng(1)
    w, g, v = (r(rng.standard_normal(200)) for _ in range(3))
    device = Device()
    arrays = [device.from_host(x, BINARY16) for x in (w, g, v)]
    row = find_update("momentum")
    change, (after,) = row(device, *arrays[:2], (arrays[2],), rate=0.1, momentum=0.9, nesterov=True)
    velocity = r(r(v * r(0.9)) + g)
    moved = r(r(g * r(0.1)) + r(r(velocity * r(0.9)) * r(0.1)))
    assert after.values.tolist() == velocity.tolist()
    assert change.values.tolist() == moved.tolist()
    assert row.applied(device, arrays[0], change).values.tolist() == r(w - moved).tolist()


def test_ftrl_clips_what_is_small_to_zero_and_is_the_value_itself():
    device = Device()
    w, g, a, z = (device.from_host([x, x], BINARY16) for x in (1.0, 0.0, 4.0, 0.25))
    row = find_update("ftrl")
    value, _ = row(device, w, g, (a, z), rate=0.5, l1=0.25, l2=0.0, power=-0.5)
    assert row.replaces
    assert value.values.tolist() == [0.0, 0.0]
    value, _ = row(device, w, g, (a, z), rate=0.5, l1=0.125, l2=0.0, power=-0.5)
    assert value.values.tolist() == [-0.03125, -0.03125]
    assert row.applied(device, w, value) is value


def test_optimisers_of_the_tape_are_names_on_the_rows(monkeypatch):
    used = []

    def noting(name):
        row = UPDATES[name]
        monkeypatch.setitem(UPDATES, name, lambda *a, **k: used.append(name) or row(*a, **k))

    noting("adam")
    noting("rms prop")
    device = Device()
    w = device.from_host([1.0], BINARY16)
    for optimiser in (Adam(), RMSProp(0.1), SGD(0.1, 0.9)):
        optimiser.rule(device, w, w, (), 0.1)
    assert used == ["adam", "rms prop"]
