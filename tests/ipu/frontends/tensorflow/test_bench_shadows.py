"""What `fpsim bench shadows` times of TensorFlow: golden (rows)."""

from __future__ import annotations

from ipu.experiments.bench import shadows
from ipu.experiments.bench.timing import Size, run
from tests.ipu.frontends.tensorflow.framework import tf


def test_a_step_is_timed_with_shadows_and_with_digests():
    assert tf.executing_eagerly()
    records = list(run(shadows.cases(Size(n=1, repeats=1), quick=True), 1))
    rows = {(r.topic, r.format, r.rounding) for r in records}
    assert {
        (f"{kind} tensorflow", *way) for kind in ("shadow", "digest")
        for way in (("binary16", "SR"), ("binary32", "RNE"))
    } <= rows
    assert all(r.ratio for r in records)
