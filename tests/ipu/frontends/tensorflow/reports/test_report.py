"""The report of a run says what ran and what it rests on (golden)."""

from __future__ import annotations

import json

from tests.ipu.frontends.tensorflow.framework import launch, machine, tf

from ipu.run.showing import Report  # isort: skip
from ipu.run.pages.page import headline, plain  # isort: skip


def program(x):
    with tf.name_scope("net"):
        return x * x + 1e-9


def test_a_report_is_complete_and_can_be_written():
    with machine(policy="f16", count=True, seed=4) as used:
        launch(tf.function(program), tf.constant([300.0, 1e-4]))
        told = json.loads(json.dumps(plain(used.run.report())))
    assert (told["launches"], told["iterations"], told["seed"]) == (1, 1, 4)
    net = told["layers"]["net"]["evaluation"]
    assert net["results"] == 4
    assert net["OVERFLOW"] == 1
    assert [row["becomes"] for row in told["constants"]] == ["zero"]
    assert "OFLO 0x1" in told["status"]
    assert told["versions"]["tensorflow"] == tf.__version__
    assert tf.__version__ in told["assumed"]
    assert "first overflow: step 0, multiply in net (evaluation), 1 results" in str(Report(told))


def test_advice_names_only_ways_that_the_command_takes():
    with machine(policy="f16", count=True) as used:
        launch(tf.function(program), tf.constant([300.0, 1e-4]))
        advised = used.run.advice(used.run.report())
    ways = [str(way) for item in advised.items for way in item.ways]
    assert "fp16+net=f32" in ways
    assert not [way for way in ways if "eps" in way or "scale" in way or "states" in way]


def test_without_counts_there_is_a_report_too():
    with machine() as used:
        launch(tf.function(program), tf.constant([1.0]))
        told = used.run.report()
    assert told["layers"] == {}
    assert told["losses"] == []
    assert str(told).startswith("0 steps on mk2")  # of an optimiser: there was none


def test_a_program_that_never_reaches_the_machine_says_so():
    with machine(policy="f16", count=True) as used:
        tf.function(program)(tf.constant([300.0]))
        told = used.run.report()
        advised = used.run.advice(told)
        assert told["unreached"] in str(told)
        assert "IPUStrategy().scope()" in str(advised)
        assert "speaks for a change" not in str(advised)
        assert headline(told) == "Nothing was computed on the machine."
        stopped = told | {"stopped": "net.py:1: NameError"}
        assert "Mend what stopped the program: net.py:1: NameError" in str(used.run.advice(stopped))
        launch(tf.function(program), tf.constant([1.0]))
        assert used.run.report()["unreached"] == ""
