"""Staging: stages of models, and the plans and refusals that follow (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import Net, data, options, poptorch, staged, torch

NAMES = ("B1", "B2", "B3", "B4")


def plan(chosen, training=True):
    net = Net()
    chosen.outputMode(poptorch.OutputMode.All)
    batches = chosen.device_iterations * chosen.replication_factor
    if training:
        model = poptorch.trainingModel(net, chosen)
        model.compile(*data(3 * batches * chosen.Training.gradient_accumulation, half=False))
    else:
        model = poptorch.inferenceModel(net, chosen)
        model.compile(data(3 * batches, half=False)[0])
    return model.plan


def test_short_and_long_notation_are_one_plan():
    long = poptorch.PipelinedExecution(
        *(poptorch.Stage(name).ipu(i) for i, name in enumerate(NAMES))
    )
    short = poptorch.PipelinedExecution(*NAMES)
    assert plan(options(long)).programs == plan(options(short)).programs


def test_a_pipeline_recomputes_and_a_sharded_model_does_not():
    pipelined = plan(options(poptorch.PipelinedExecution(*NAMES)))
    sharded = plan(options(poptorch.ShardedExecution(*NAMES)))
    assert (pipelined.recomputation, sharded.recomputation) == ("interleaved", None)
    assert (pipelined.slots, sharded.slots) == (13, 56)
    assert sharded.utilisation() == 0.25
    assert pipelined.offloaded == frozenset()


def test_neighbours_on_one_ipu_are_one_stage():
    stages = [poptorch.Stage(n).ipu(i) for n, i in zip(NAMES, (0, 0, 1, 1), strict=True)]
    own = plan(options(poptorch.PipelinedExecution(*stages)))
    assert own.places == ((0,), (1,))


def test_inference_counts_device_iterations():
    chosen = poptorch.Options().deviceIterations(4)
    chosen.setExecutionStrategy(poptorch.PipelinedExecution(*NAMES))
    own = plan(chosen, training=False)
    assert (own.count, own.training, own.slots) == (4, False, 7)


class Numbered(torch.nn.Module):
    """Blocks with IPUs and no strategy."""

    def __init__(self, ipus):
        super().__init__()
        self.ipus = ipus
        self.layers = torch.nn.ModuleList(torch.nn.Linear(6, 6) for _ in ipus)

    def forward(self, x):
        for layer, ipu in zip(self.layers, self.ipus, strict=True):
            with poptorch.Block(ipu_id=ipu):
                x = layer(x)
        return x


@pytest.mark.parametrize("auto", list(poptorch.AutoStage))
def test_blocks_with_ipus_need_no_stages(auto):
    chosen = poptorch.Options().deviceIterations(2)
    chosen.setExecutionStrategy(poptorch.PipelinedExecution(auto))
    model = poptorch.inferenceModel(Numbered([0, 1]), chosen)
    model.compile(torch.ones(2, 6))
    assert model.plan.places == ((0,), (1,))


def test_blocks_without_ipus_need_stages_or_auto_increment():
    chosen = poptorch.Options().deviceIterations(2)
    model = poptorch.inferenceModel(Numbered([None, None]), chosen)
    with pytest.raises(ValueError, match="SameAsIpu was selected but no IPU was specified for b"):
        model.compile(torch.ones(2, 6))
    chosen = poptorch.Options().deviceIterations(2)
    chosen.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    model = poptorch.inferenceModel(Numbered([None, None]), chosen)
    model.compile(torch.ones(2, 6))
    assert model.plan.places == ((0,), (1,))


@pytest.mark.parametrize(
    ("strategy", "count", "words"),
    [
        (poptorch.PipelinedExecution("B1", "B2", "B3"), 7, "Unknown Block 'B4' list of expected"),
        (poptorch.PipelinedExecution(*NAMES, "B5"), 9, r"no block of Stage\('B5'\) runs in the m"),
        (poptorch.PipelinedExecution(*NAMES), 6, r"gradientAccumulation\(6\): a pipeline of 4 "),
        (staged("B1", "B2", "B3 B4"), 7, "the model needs 3 IPUs, and their number must be a"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(strategy, count, words):
    with pytest.raises(ValueError, match=words) as caught:
        plan(options(strategy, count))
    assert "\n" not in str(caught.value)


def test_a_number_of_ipus_is_rounded_when_asked():
    own = plan(options(staged("B1", "B2", "B3 B4")).autoRoundNumIPUs(True))
    assert own.n_stages == 3


def test_inferences_accumulate_nothing_and_fill_their_pipeline():
    with pytest.raises(ValueError, match=r"gradientAccumulation\(7\) in an inference"):
        plan(options(poptorch.PipelinedExecution(*NAMES)), training=False)
    chosen = options(poptorch.PipelinedExecution(*NAMES), 1, iterations=3)
    with pytest.raises(ValueError, match=r"deviceIterations\(3\): a pipeline of 4 stages needs 4"):
        plan(chosen, training=False)


def test_a_model_without_blocks_is_one_stage():
    model = poptorch.inferenceModel(torch.nn.Linear(6, 2))
    model(torch.ones(2, 6))
    assert model.plan.n_stages == 1
    chosen = poptorch.Options().setExecutionStrategy(poptorch.PipelinedExecution("B1"))
    with pytest.raises(ValueError, match="the model has no blocks, but the strategy lists B1"):
        poptorch.inferenceModel(torch.nn.Linear(6, 2), chosen).compile(torch.ones(2, 6))
