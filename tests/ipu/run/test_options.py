"""Options of a run: what is refused, and what follows from them (golden)."""

from __future__ import annotations

import re

import pytest

from ipu.learn.policy import FP16
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from ipu.run.changes import Changes
from ipu.run.options import RunOptions
from ipu.run.ways import Way


def test_a_way_is_policy_rounding_and_changes():
    changes = Changes(eps=1e-3)
    assert RunOptions(policy="fp16", sr=True, changes=changes).way == Way(FP16, True, changes)
    assert not RunOptions(sr=None).way.sr


def test_a_trial_counts_without_traps_and_keeps_the_rest():
    options = RunOptions(
        policy="mixed", traps=True, nanoo=True, target="mk1", ties="all", found_inf="status",
        preset="exact", f32_denormals="ieee", max_nan="propagate", sums="chain",
    )
    trial = options.in_way(Way.parse("fp16+sr+eps=1e-4"), 5)
    assert (trial.policy, trial.sr, trial.seed, trial.count, trial.traps) == (
        FP16, True, 5, True, False
    )
    assert trial.changes == Changes(eps=1e-4)
    names = ("nanoo", "target", "ties", "found_inf", "preset", "f32_denormals", "max_nan", "sums")
    assert [getattr(trial, n) for n in names] == [getattr(options, n) for n in names]


def test_the_control_register_follows():
    assert RunOptions().control == FpCtl()
    on = RunOptions(sr=True, traps=True, nanoo=True).control
    assert on == FpCtl(inv=True, div0=True, oflo=True, esr=True, nanoo=True)
    assert RunOptions(nanoo=True).control == FpCtl(nanoo=True)


def test_a_device_takes_them():
    options = RunOptions(
        seed=3, count=True, preset="exact", f32_denormals="ieee", max_nan="propagate", sums="chain"
    )
    device = Device(options.target, options.control, **options.device_options)
    assert (device.source.seed, device.counts) == (3, {})
    taken = device.options
    assert (taken.preset, taken.f32_denormals, taken.max_nan, taken.sums) == (
        "exact", "ieee", "propagate", "chain"
    )


@pytest.mark.parametrize(
    ("option", "error", "text"),
    [
        ({"ties": "some"}, ValueError, "ties='some' is not known; use first or all"),
        ({"found_inf": "no"}, ValueError, "found_inf='no' is not known; use values or status"),
        ({"policy": "f17"}, ValueError, "policy item 'f17' is not known"),
        ({"policy": None}, TypeError, "policy=None is not a policy"),
        ({"target": "mk9"}, ValueError, "target='mk9' is not known"),
        ({"changes": {"eps": 1}}, TypeError, "is no fpsim.torch.Changes; as in Changes(eps=1e-4)"),
        *(({name: 1}, TypeError, f"{name}=1 is neither True nor False")
          for name in ("sr", "count", "nanoo", "traps")),
        *(({name: None}, TypeError, f"{name}=None is neither True nor False")
          for name in ("count", "nanoo", "traps")),
    ],
)
def test_what_is_no_option_is_refused(option, error, text):
    with pytest.raises(error, match=re.escape(text)):
        RunOptions(**option)
