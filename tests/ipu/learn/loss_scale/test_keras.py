"""The loss scale of Keras, step by step (golden)."""

from __future__ import annotations

import pytest

from ipu.learn.loss_scale import (
    EdgeHistogram,
    KerasLossScale,
    Statistic,
)
from tests.ipu.learn.loss_scale.small import seen


def followed(scale, *statistics):
    values = []
    for statistic in statistics:
        scale = scale.successor([], statistic)
        values.append(scale.value)
    return scale, values


@pytest.mark.source("Graphcore Keras: als_optimizer_test.py")
def test_the_first_change_comes_with_the_call_after_the_frequency():
    fine = seen(1, 0)
    scale, values = followed(KerasLossScale(), *[fine] * 8)
    assert set(values) == {1}
    assert scale.histogram == (8, 0)
    scale, values = followed(scale, fine)
    assert (values, scale.histogram, scale.count) == ([2], (0, 0), 0)
    assert followed(scale, *[fine] * 9)[1] == [2] * 8 + [4]
    assert followed(KerasLossScale(frequency=1), *[fine] * 3)[1] == [2, 4, 8]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_the_share_of_large_gradients_over_the_whole_period_decides():
    spoilt, fine = seen(0, 1), seen(1000, 0)
    start = KerasLossScale(64.0, frequency=2)
    assert followed(start, spoilt, fine, fine)[1] == [64, 64, 32]
    assert followed(KerasLossScale(64.0, frequency=2, accumulate=False),
                    *(Statistic(), Statistic(), fine))[1] == [64, 64, 128]
    few = KerasLossScale(64.0, frequency=1, threshold=0.01)
    assert followed(few, seen(99, 1))[1] == [128]
    assert followed(few, seen(98, 2))[1] == [32]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_statistics_are_taken_when_they_are_used():
    at_all = KerasLossScale(frequency=2)
    at_last = KerasLossScale(frequency=2, accumulate=False)
    taken = []
    for scale in (at_all, at_last):
        for _ in range(3):
            statistic = scale.statistic()
            taken.append(isinstance(statistic, EdgeHistogram))
            scale = scale.successor([], statistic)
    assert taken == [True, True, True, False, False, True]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_the_scale_stays_from_one_to_below_the_largest():
    fine, spoilt = seen(1, 0), seen(0, 1)
    assert followed(KerasLossScale(8192.0, frequency=1), fine, fine)[1] == [16384, 16384]
    assert followed(KerasLossScale(2.0, frequency=1), spoilt, spoilt)[1] == [1, 1]


@pytest.mark.source("Graphcore Keras: als_optimizer.py")
def test_the_filter_leaves_out_a_share_of_the_new_counts():
    scale = KerasLossScale(frequency=4, filter=0.75)
    scale, _ = followed(scale, seen(16, 8))
    assert scale.histogram == (4, 2)
    scale, _ = followed(scale, seen(16, 0))
    assert scale.histogram == (0.75 * 4 + 0.25 * 20, 2)


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [({"factor": 3.0}, "initial=3.0 is not a power of two"),
     ({"increase": 3.0}, "increase=3.0 is not a power of two"),
     ({"largest": 1000.0}, "largest=1000.0 is not a power of two"),
     ({"factor": 16384.0, "increase": 2.0}, "leaves no room below largest=32768"),
     ({"increase": 1.0}, "increase must be above 1"),
     ({"frequency": 0}, "frequency=0 is out of range"),
     ({"threshold": 0.0}, "threshold=0.0 is out of range"),
     ({"filter": 1.5}, "filter=1.5 is out of range")],
)
def test_impossible_keras_scales_are_refused(choices, sentence):
    with pytest.raises(ValueError, match=sentence):
        KerasLossScale(**choices)
