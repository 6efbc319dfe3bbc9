"""Strategies: stages of blocks, phases, refusals (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch

Pipelined, Stage, Phase = poptorch.PipelinedExecution, poptorch.Stage, poptorch.Phase


@pytest.mark.source("S2-19", "S2-22")
def test_stages_are_written_in_three_ways():
    strategy = Pipelined(Stage("A").ipu(1), "B", ["C", "D"])
    assert [strategy.locate(name, None) for name in "ABCD"] == [(0, 1), (1, 1), (2, 2), (2, 2)]
    assert strategy.stage("D").blocks == ("C", "D")
    assert repr(strategy) == "PipelinedExecution(Stage('A').ipu(1), Stage('B'), Stage('C', 'D'))"


@pytest.mark.source("S2-20")
def test_names_alone_are_stages_on_ipus_in_order():
    names = ("B1", "B2", "B3", "B4")
    short = Pipelined(*names)
    explicit = Pipelined(*(Stage(name).ipu(ipu) for ipu, name in enumerate(names)))
    assert [short.locate(name, None) for name in names] == [(i, i) for i in range(4)]
    assert [explicit.locate(name, None) for name in names] == [(i, i) for i in range(4)]


def test_an_ipu_of_the_block_counts_where_the_stage_has_none():
    strategy = Pipelined("A", Stage("B").ipu(3))
    assert strategy.locate("A", 2) == (0, 2)
    assert strategy.locate("B", 2) == (1, 3)


@pytest.mark.source("S2-28")
def test_sharded_execution_is_a_pipeline_of_another_schedule():
    strategy = poptorch.ShardedExecution("A", "B")
    assert isinstance(strategy, Pipelined)
    assert (strategy.schedule, Pipelined("A").schedule) == ("sequential", "popart")


def test_phases_number_their_backward_phases():
    strategy = poptorch.SerialPhasedExecution("A", "B", "C")
    assert strategy.backward_phases() == (4, 3, 2)
    assert strategy.useSeparateBackwardPhase().backward_phases() == (6, 5, 4)


def test_phases_place_their_stages():
    strategy = poptorch.ParallelPhasedExecution(
        [Phase(Stage("0"), Stage("1")), Phase(Stage("2"), Stage("3"))]
    )
    strategy.phase(0).ipus(0, 2)
    strategy.phase(1).ipus(1, 3)
    assert [strategy.locate(name, None).ipu for name in "0123"] == [0, 2, 1, 3]
    serial = poptorch.SerialPhasedExecution(["A", "A2"], Phase("B"))
    assert serial.phase(0).stage(0).blocks == ("A", "A2")
    assert serial.locate("B", None) == (1, 0)


def test_liveness_says_what_leaves_the_chip():
    serial = poptorch.SerialPhasedExecution("A", "B")
    assert serial.offload == frozenset()
    serial.setTensorsLiveness(poptorch.Liveness.OffChipAfterFwd)
    assert serial.offload == {"activations"}
    serial.setTensorsLiveness(poptorch.Liveness.OffChipAfterEachPhase)
    assert "weights" in serial.offload
    parallel = poptorch.ParallelPhasedExecution("A", "B").sendTensorsOffChipAfterFwd()
    assert parallel.offload == {"activations"}
    assert parallel.sendTensorsOffChipAfterFwd(False).offload == frozenset()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: Stage(1), TypeError, "Block IDs are supposed to be strings"),
        (lambda: Stage(), ValueError, "has no blocks"),
        (lambda: Stage("A", "B", "A"), ValueError, "A is twice in one stage; name each block once"),
        (lambda: Stage("A").ipu("0"), TypeError, "ipu='0' is not the number"),
        (lambda: Stage("A").ipu(-1), ValueError, "ipu=-1 is not the number"),
        (lambda: Pipelined("A", Stage("B", "A")), ValueError, "A associated with more than one"),
        (lambda: Pipelined(3), TypeError, "3 is no stage"),
        (lambda: Pipelined("A").stage("B"), ValueError, "Unknown block B; known are: A"),
        (lambda: Pipelined("A").locate("B", None), ValueError, "Unknown Block 'B' list of exp"),
        (lambda: poptorch.SerialPhasedExecution(), ValueError, "no AutoStage for PhasedExecution"),
        (lambda: Phase("A", Stage("B")), TypeError, "All arguments must either be block ids"),
        (lambda: Phase("A").ipus(0, 1), ValueError, "contains 1 stages but you provided 2 ipus"),
        (lambda: poptorch.SerialPhasedExecution("A").phase(-1), ValueError, "positive integers"),
        (lambda: poptorch.SerialPhasedExecution("A").phase(1), ValueError, "there are 1 phases"),
        (lambda: poptorch.SerialPhasedExecution("A").setTensorsLiveness(1), TypeError, "Liveness"),
        (lambda: poptorch.SerialPhasedExecution("A").useSeparateBackwardPhase(1), TypeError,
         "use=1 is not a bool"),
    ],
)
def test_bad_input_is_one_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call()
