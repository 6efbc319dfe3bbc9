"""Staging: stages of models, and the plans and refusals that follow (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import Net, data, options, poptorch, staged, torch

NAMES = ("B1", "B2", "B3", "B4")


def plan(run_options, training=True):
    net = Net()
    run_options.outputMode(poptorch.OutputMode.All)
    batches = run_options.device_iterations * run_options.replication_factor
    if training:
        model = poptorch.trainingModel(net, run_options)
        model.compile(*data(3 * batches * run_options.Training.gradient_accumulation, half=False))
    else:
        model = poptorch.inferenceModel(net, run_options)
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
    stage_plan = plan(options(poptorch.PipelinedExecution(*stages)))
    assert stage_plan.places == ((0,), (1,))


def test_inference_counts_device_iterations():
    run_options = poptorch.Options().deviceIterations(4)
    run_options.setExecutionStrategy(poptorch.PipelinedExecution(*NAMES))
    stage_plan = plan(run_options, training=False)
    assert (stage_plan.count, stage_plan.training, stage_plan.slots) == (4, False, 7)


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
    run_options = poptorch.Options().deviceIterations(2)
    run_options.setExecutionStrategy(poptorch.PipelinedExecution(auto))
    model = poptorch.inferenceModel(Numbered([0, 1]), run_options)
    model.compile(torch.ones(2, 6))
    assert model.plan.places == ((0,), (1,))


def test_blocks_without_ipus_need_stages_or_auto_increment():
    run_options = poptorch.Options().deviceIterations(2)
    model = poptorch.inferenceModel(Numbered([None, None]), run_options)
    with pytest.raises(ValueError, match="SameAsIpu was selected but no IPU was specified for b"):
        model.compile(torch.ones(2, 6))
    run_options = poptorch.Options().deviceIterations(2)
    run_options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    model = poptorch.inferenceModel(Numbered([None, None]), run_options)
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
    stage_plan = plan(options(staged("B1", "B2", "B3 B4")).autoRoundNumIPUs(True))
    assert stage_plan.n_stages == 3


def test_inferences_accumulate_nothing_and_fill_their_pipeline():
    with pytest.raises(ValueError, match=r"gradientAccumulation\(7\) in an inference"):
        plan(options(poptorch.PipelinedExecution(*NAMES)), training=False)
    run_options = options(poptorch.PipelinedExecution(*NAMES), 1, iterations=3)
    with pytest.raises(ValueError, match=r"deviceIterations\(3\): a pipeline of 4 stages needs 4"):
        plan(run_options, training=False)


def test_a_model_without_blocks_is_one_stage():
    model = poptorch.inferenceModel(torch.nn.Linear(6, 2))
    model(torch.ones(2, 6))
    assert model.plan.n_stages == 1
    run_options = poptorch.Options().setExecutionStrategy(poptorch.PipelinedExecution("B1"))
    with pytest.raises(ValueError, match="the model has no blocks, but the strategy lists B1"):
        poptorch.inferenceModel(torch.nn.Linear(6, 2), run_options).compile(torch.ones(2, 6))
