"""The report of a run says what ran and what it rests on (golden)."""

from __future__ import annotations

import json

from tests.ipu.frontends.tensorflow.framework import launch, machine, tf

from ipu.frontends.tensorflow.engine.report import report  # isort: skip


def test_a_report_is_complete_and_can_be_written():
    def program(x):
        with tf.name_scope("net"):
            return x * x + 1e-9

    with machine(policy="f16", count=True, seed=4) as used:
        launch(tf.function(program), tf.constant([300.0, 1e-4]))
        told = json.loads(json.dumps(report(used)))
    assert (told["launches"], told["iterations"], told["seed"]) == (1, 1, 4)
    net = told["layers"]["net"]["forward"]
    assert net["results"] == 4
    assert net["OVERFLOW"] == 1
    assert [row["becomes"] for row in told["constants"]] == ["zero"]
    assert "OFLO 0x1" in told["status"]
    assert told["versions"]["tensorflow"] == tf.__version__
    assert tf.__version__ in told["assumed"]
