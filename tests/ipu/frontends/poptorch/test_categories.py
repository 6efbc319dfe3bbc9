"""Groups of options: defaults, setters, refusals (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch, torch

Reduction, Strategy = poptorch.ReductionType, poptorch.MeanReductionStrategy


def test_defaults():
    options = poptorch.Options()
    assert options.Training.accumulation_and_replication_reduction_type is Reduction.Mean
    strategy = options.Training.meanAccumulationAndReplicationReductionStrategy
    assert strategy is Strategy.Post
    assert options.Precision.autocast_enabled
    assert "conv2d" in options.Precision.autocast_policy_dict["fp16"]
    assert options.Precision.autocast_policy_dict["fp32"] == []
    assert options.Precision.partials_type == "float"
    assert not options.Precision.enable_stochastic_rounding
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (0, 1)
    assert options.Jit.trace_model is False
    assert options._Popart.options["rearrangeAnchorsOnHost"] is False


def test_setters_chain():
    options = poptorch.Options()
    options.Precision.setPartialsType(torch.half).enableStochasticRounding(True)
    precision = options.Precision
    assert (precision.partials_type, precision.enable_stochastic_rounding) == ("half", True)
    options.Precision.enableFloatingPointExceptions(True).autocastEnabled(False)
    options.Precision.runningVarianceAlwaysFloat(True)
    options.Training.accumulationAndReplicationReductionType(Reduction.Sum)
    options.Training.setMeanAccumulationAndReplicationReductionStrategy(Strategy.Running)
    assert options.Training.is_strategy_chosen
    options.Training.setAutomaticLossScaling(True)
    assert options.Training.automatic_loss_scaling
    assert options.clone().Training.automatic_loss_scaling
    options.Distributed.disable().configureProcessId(0, 1)


def test_what_is_not_modelled_says_so(monkeypatch):
    from ipu.frontends.poptorch import dictionary

    calls = (
        lambda o: o.Training.setConvolutionDithering(True),
        lambda o: o.Precision.autocastPolicy(poptorch.autocasting.Policy(fp16=["mm"])),
        lambda o: o.Precision.runningStatisticsAlwaysFloat(False),
        lambda o: o.Jit.traceModel(True),
        lambda o: o._Popart.set("autoRecomputation", 3),
        lambda o: o._Popart.setPatterns({"x": True}),
    )
    for call in calls:
        monkeypatch.setattr(dictionary, "_told", set())
        with pytest.warns(UserWarning, match="has no effect here"):
            call(poptorch.Options())


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda o: o.Training.gradientAccumulation(0), ValueError, "use 1 or more"),
        (lambda o: o.Training.accumulationAndReplicationReductionType(Reduction.NoReduction),
         ValueError, "must be set to poptorch.ReductionType.Mean or"),
        (lambda o: o.Training.setMeanAccumulationAndReplicationReductionStrategy("Post"),
         ValueError, "must be set to poptorch.MeanReductionStrategy.Running or"),
        (lambda o: o.Training.setMeanAccumulationAndReplicationReductionStrategy(
            Strategy.PostAndLoss), ValueError, "deprecated; use Post"),
        (lambda o: o.Precision.setPartialsType(torch.bfloat16), ValueError,
         "parameter to setPartialsType should be either torch.float or torch.half"),
        (lambda o: o.Precision.halfFloatCasting(1), ValueError, "halfFloatCasting must be set"),
        (lambda o: o.Precision.autocastPolicy(1), TypeError, "autocasting.Policy"),
        (lambda o: o.Precision.enableStochasticRounding(1), TypeError, "use True or False"),
        (lambda o: o.Distributed.configureProcessId(1, 1), ValueError, "count from 0"),
    ],
)
def test_bad_input_is_one_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call(poptorch.Options())
