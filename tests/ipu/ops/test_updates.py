"""The table of updates: each equation once, used by everyone, and what a name refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.optim import SGD, Adam, AdamW, RMSProp
from ipu.machine import Device
from ipu.ops.updates import UPDATES, Around, find_update
from ipu.ops.updates.popart import combined_decay, combined_share

#: Slots that are one number, and numbers and options that are no share.
SINGLE = {"step", "mu", "eta", "mu_product"}
NUMBERS = {
    "betas": (0.5, 0.75), "maximize": False, "nesterov": True, "amsgrad": True, "centered": True,
    "decoupled": False, "decoupled_weight_decay": False, "use_tf_variant": False,
    "use_combined_accum": False, "bias_correction": True, "grows": True, "in_root": True,
    "by_rate": False, "dampening": 0.0, "power": -0.5, "step_size_min": 1e-3,
    "max_weight_norm": 10.0, "etaplus": 1.25,
}


@pytest.mark.parametrize("row", UPDATES.values(), ids=list(UPDATES))
def test_a_row_says_what_it_rounds_and_where_it_comes_from(row):
    assert UPDATES[row.name] is row
    assert row.rounding
    assert row.numbers
    assert re.search(r"\.(cc|cpp|hpp|py)\b", row.source)


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(ValueError, match="update='adamw' is not known; use one of tensorflow desc"):
        find_update("adamw")


def r(x):
    return np.float16(x).astype(np.float64)


def test_numbers_are_constants_of_the_format():
    """Momentum: every operation rounded once from binary64, with rounded constants."""
    rng = np.random.default_rng(1)
    w, g, v = (r(rng.standard_normal(200)) for _ in range(3))
    device = Device()
    arrays = [device.from_host(x, BINARY16) for x in (w, g, v)]
    after = find_update("tensorflow momentum")(
        device, *arrays[:2], (arrays[2],), rate=0.1, momentum=0.9, nesterov=True
    )
    velocity = r(r(v * r(0.9)) + g)
    moved = r(r(g * r(0.1)) + r(r(velocity * r(0.9)) * r(0.1)))
    assert after.slots[0].values.tolist() == velocity.tolist()
    assert after.change.values.tolist() == moved.tolist()
    assert after.value.values.tolist() == r(w - moved).tolist()


def test_ftrl_clips_what_is_small_to_zero_and_is_the_value_itself():
    device = Device()
    w, g, a, z = (device.from_host([x, x], BINARY16) for x in (1.0, 0.0, 4.0, 0.25))
    row = find_update("tensorflow ftrl")
    after = row(device, w, g, (a, z), rate=0.5, l1=0.25, l2=0.0, power=-0.5)
    assert after.change is None
    assert after.value.values.tolist() == [0.0, 0.0]
    after = row(device, w, g, (a, z), rate=0.5, l1=0.125, l2=0.0, power=-0.5)
    assert after.value.values.tolist() == [-0.03125, -0.03125]


def test_nothing_that_is_given_changes():
    """Of every row, in both formats of the machine."""
    for fmt in (BINARY16, BINARY32):
        for row in UPDATES.values():
            device = Device()
            w, g, *slots = (
                device.from_host(np.linspace(0.25, 1, 4) * (1 + i), fmt)
                for i in range(2 + len(row.slots))
            )
            slots = [
                device.from_host(1.0, BINARY32) if name in SINGLE else x
                for name, x in zip(row.slots, slots, strict=True)
            ]
            before = [np.array(x.carrier) for x in (w, g, *slots)]
            after = row(device, w, g, slots, **{n: NUMBERS.get(n, 0.5) for n in row.numbers})
            assert len(after.slots) == len(slots)
            assert after.value.format == fmt
            assert not np.array_equal(after.value.carrier, w.carrier), row.name
            for x, was in zip((w, g, *slots), before, strict=True):
                assert np.array_equal(x.carrier, was), row.name


def test_a_fused_form_would_see_no_hooks():
    """What a front end adds is a record; without it nothing is told."""
    told = []
    device = Device()
    w, g = (device.from_host([x], BINARY16) for x in (1.0, 0.5))
    around = Around(
        watch=lambda result, operands: told.append((result, operands)),
        moved=lambda *move: told.append(move),
    )
    row = find_update("torch sgd")
    numbers = {"lr": 0.5, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False,
               "maximize": False}
    assert row(device, w, g, (None,), around, **numbers).value.tolist() == [0.75]
    ((result, read), (verb, before, operands, factor, after)) = told
    assert [x.tolist() for x in read] == [[1.0], [0.5]]
    assert (verb, factor, before.tolist(), after.tolist()) == ("add", -0.5, [1.0], [0.75])
    assert result is after
    assert operands[0] is g


def test_optimisers_of_the_tape_are_names_on_the_rows(monkeypatch):
    used = []

    def noting(name):
        row = UPDATES[name]
        monkeypatch.setitem(UPDATES, name, lambda *a, **k: used.append(name) or row(*a, **k))

    names = ["tensorflow adam", "native adamw", "tensorflow rms prop", "native sgd"]
    for name in names:
        noting(name)
    device = Device()
    w = device.from_host([1.0], BINARY16)
    for optimiser in (Adam(), AdamW(), RMSProp(0.1), SGD(0.1, 0.9)):
        optimiser.rule(device, w, w, (), 0.1)
    assert used == names


def test_factors_of_a_velocity_that_gradients_are_added_to_at_once():
    """PopART's dpsf1 and swd1: (1 - dampening) · scaling, over the loss scale or by the decay."""
    assert combined_share(0.5, 8.0, 0.125) == 0.5
    assert combined_decay(0.5, 0.25, 8.0) == 1.0
