"""Delayed scales of a device, from moment to moment (law, corners)."""

from __future__ import annotations

import json

import pytest

from fpsim import E4M3FN, DelayedScale
from ipu.machine.delayed import DelayedScales, Moment


def factors(scales, amax, moments, layer="l"):
    return [scales.factor(layer, "x", E4M3FN, 4, m, a)
            for m, a in zip(moments, amax, strict=True)]


def test_each_moment_has_the_scale_of_the_state_before_it():
    scales, state = DelayedScales(), DelayedScale(length=4)
    for step, amax in enumerate((3.0, 100.0, 0.0, float("nan"), 2.0, 1.0)):
        assert factors(scales, [amax], [Moment(step)]) == [state.scale]
        state = state.after(amax)


def test_a_layer_that_is_called_again_in_a_moment_has_one_scale_and_the_largest_of_both():
    scales = DelayedScales()
    moments = [Moment(0), Moment(0), Moment(1)]
    assert factors(scales, [2.0, 8.0, 1.0], moments) == [1.0, 1.0, DelayedScale().after(8.0).scale]


def test_backward_passes_of_earlier_micro_batches_have_the_scales_of_their_own():
    scales = DelayedScales()
    first, second = Moment(0, 0), Moment(0, 1)
    forward = factors(scales, [2.0, 4.0], [first, second])
    assert factors(scales, [2.0, 4.0], [first, second]) == forward
    assert forward[0] != forward[1]


def test_evaluations_record_nothing():
    scales = DelayedScales()
    moments = [Moment(0), Moment(1, 0, is_training=False), Moment(1)]
    one, two, three = factors(scales, [4.0, 1000.0, 4.0], moments)
    assert one == 1.0
    assert two == three == DelayedScale().after(4.0).scale


@pytest.mark.parametrize("stop", [1, 2, 3])
def test_a_state_goes_on_with_the_same_scales(stop):
    amax = [3.0, 100.0, 5.0, 2.0, 1.0]
    moments = [Moment(i // 2, i % 2) for i in range(5)]
    whole = factors(DelayedScales(), amax, moments)
    begun = DelayedScales()
    first = factors(begun, amax[:stop], moments[:stop])
    resumed = DelayedScales()
    resumed.load(json.loads(json.dumps(begun.state())))
    assert first + factors(resumed, amax[stop:], moments[stop:]) == whole
    assert resumed


def test_what_is_no_state_is_refused_and_changes_nothing():
    scales = DelayedScales()
    factors(scales, [3.0], [Moment(0)])
    before = scales.state()
    for state in ({"l|x": {"scale": 1.0}}, {"l": before["l|x"]}, {"l|x": 3}):
        with pytest.raises(ValueError, match="is no delayed scale of a layer's operand"):
            scales.load(state)
    assert scales.state() == before
