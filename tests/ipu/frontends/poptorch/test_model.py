"""Models: compiling, devices, weights, checkpoints, refusals (golden, law)."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tests.ipu.frontends.poptorch.framework import (
    STRATEGIES,
    Net,
    bits,
    data,
    options,
    poptorch,
    same,
    session_of,
    sgd,
    torch,
    train,
)


def build(run_options=None):
    net = Net().half()
    run_options = options(STRATEGIES["unsplit"]()) if run_options is None else run_options
    return poptorch.trainingModel(net, run_options, sgd(net.parameters()))


@pytest.mark.source("S2-38")
def test_the_first_call_compiles_and_another_shape_again():
    model = build()
    assert not model.isCompiled()
    model.compile(*data(21))
    assert model.isCompiled()
    assert not model.isAttachedToDevice()
    for _ in range(2):
        model(*data(21))
    assert model.compilations == 1
    model(*data(42))
    assert model.compilations == 2


def test_compiling_leaves_no_trace():
    one, two = build(), build()
    two.compile(*data(21))
    for model in (one, two):
        model(*data(21))
    assert same(bits(one), bits(two))


@pytest.mark.source("S2-16", "S2-37")
def test_training_and_inference_share_the_weights():
    model = build()
    model(*data(21))
    run_options = model.options.clone().deviceIterations(2)
    run_options.Training.gradientAccumulation(1)
    run_options.Precision.enableStochasticRounding(False)
    inference = poptorch.inferenceModel(model.model, run_options)
    x = data(6)[0]
    result = inference(x)
    model.model.eval()
    assert torch.allclose(result.float(), model.model(x).float(), atol=0.02)
    model.model.train()
    assert poptorch.inferenceModel(model).model is model.model


def test_modes_of_modules_are_as_before_after_a_call():
    model = build()
    model.model.norm.eval()
    model(*data(21))
    assert (model.model.training, model.model.norm.training) == (True, False)


def test_devices_are_attached_and_given_free():
    model = build()
    with pytest.raises(RuntimeError, match="the model is not compiled yet"):
        model.attachToDevice()
    model(*data(21))
    assert model.isAttachedToDevice()
    with pytest.raises(RuntimeError, match="is attached already"):
        model.attachToDevice()
    model.detachFromDevice()
    with pytest.raises(RuntimeError, match="is not attached"):
        model.detachFromDevice()
    model.attachToDevice()
    model.copyWeightsToHost()
    model.copyWeightsToDevice()
    model.destroy()
    with pytest.raises(RuntimeError, match="the model was destroyed; wrap it again"):
        model(*data(21))


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_saved_model_goes_on_bit_by_bit(tmp_path, replicas):
    def chosen():
        return options(STRATEGIES["pipelined"](), replicas=replicas)

    n = 21 * replicas
    straight = build(chosen())
    for step in range(4):
        straight(*data(n, True, step))
    broken = build(chosen())
    for step in range(2):
        broken(*data(n, True, step))
    broken.save(tmp_path / "model.pt")
    again = poptorch.load(tmp_path / "model.pt", lambda opts: opts.modelName("x"))
    for step in (2, 3):
        again(*data(n, True, step))
    assert same(bits(straight), bits(again))
    buffers = [dict(m._executor.models[-1].named_buffers()) for m in (straight, again)]
    assert same(*buffers)


def test_a_model_in_memory_goes_back_to_a_checkpoint():
    model = build()
    model(*data(21))
    checkpoint = copy.deepcopy(model.checkpoint())
    model(*data(21, seed=2))
    first = bits(model)
    model.restore(checkpoint)
    model(*data(21, seed=2))
    assert same(first, bits(model))


def test_another_optimiser_takes_the_state_over():
    model = build()
    model(*data(21))
    model.setOptimizer(sgd(model.model.parameters(), lr=0.0, momentum=0.5))
    before = {name: p.detach().clone() for name, p in model.model.named_parameters()}
    velocity = model.optimizer.state[model.model.a.weight]["velocity"].clone()
    model(*data(21))
    assert same(before, dict(model.model.named_parameters()))
    assert not torch.equal(velocity, model.optimizer.state[model.model.a.weight]["velocity"])
    with pytest.raises(ValueError, match="has other parameters than the one before"):
        model.setOptimizer(sgd(Net().parameters()))
    with pytest.raises(RuntimeError, match="an inference model has no optimiser"):
        poptorch.inferenceModel(model.model).setOptimizer(sgd(model.model.parameters()))


def test_arguments_of_an_optimiser_change_with_set_optimizer_alone():
    """PopTorch reads an optimiser when it is handed over (python/_poplar_executor.py)."""
    model = build()
    optimiser = model.optimizer
    model(*data(21))
    optimiser.param_groups[0]["lr"] = 0.0
    before = bits(model)
    with pytest.warns(UserWarning, match=r"lr is 0.0, and 0.05 on the device; changes take effect"):
        model(*data(21))
    changed = bits(model)
    assert not same(before, changed)
    model(*data(21))  # told once
    changed = {name: p.detach().clone() for name, p in model.model.named_parameters()}
    model.setOptimizer(optimiser)
    model(*data(21))
    assert same(changed, dict(model.model.named_parameters()))


def test_the_wrapper_answers_for_the_model():
    model = build()
    assert list(model.state_dict()) == list(model.model.state_dict())
    model.load_state_dict(model.state_dict())
    assert len(list(model.parameters())) == len(list(model.model.parameters()))
    with pytest.raises(AttributeError):
        _ = model.nothing_of_that_name
    with pytest.raises(AttributeError, match="getLatency: nothing is timed here; writeProfile"):
        model.getLatency()


def test_the_report_is_that_of_a_session_with_the_plan():
    model, _ = train(options(STRATEGIES["pipelined"]()))
    report = model.report()
    assert report["native"] == 0
    assert report["plan"][0].startswith("4 stages on IPU 0 1 2 3, popart, 13 slots")
    assert {"a", "d", "optimizer"} <= set(report["layers"])
    assert "accumulate" in report["layers"]["a.weight"]


def test_the_report_has_losses_by_step_and_the_loss_scale():
    run_options = options(STRATEGIES["pipelined"](), iterations=2, replicas=2)
    model, losses = train(run_options, steps=1)
    report = model.report()
    assert report["loss_scale"]["present"] == 64
    by_step = losses.float().reshape(2, -1).mean(1)  # two updates of G · R micro-batches
    assert np.allclose(report["losses"], by_step, rtol=1e-6)


def test_synthetic_data_stand_for_the_inputs():
    run_options = poptorch.Options().enableSyntheticData(True)
    result = poptorch.inferenceModel(torch.nn.Identity(), run_options)(torch.zeros(4, 2))
    assert result.abs().sum() > 0


def test_named_arguments_and_a_default_optimiser_are_taken():
    net = Net()
    run_options = options(STRATEGIES["unsplit"](), 1)
    x, labels = data(3, half=False)
    output, loss = poptorch.trainingModel(net, run_options)(x, labels=labels)
    assert (tuple(output.shape), tuple(loss.shape)) == ((3, 3), (1,))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: poptorch.trainingModel(abs, optimizer=sgd(Net().parameters())), TypeError,
         "is not a torch.nn.Module"),
        (lambda: poptorch.inferenceModel(Net(), {}), TypeError, "options=dict is not a poptorch.O"),
        (lambda: poptorch.trainingModel(Net(), None, torch.optim.Adagrad(Net().parameters())),
         TypeError, "optimizer=Adagrad is not supported"),
        (lambda: poptorch.inferenceModel(Net(), poptorch.Options().connectionType(
            poptorch.ConnectionType.Never))(torch.ones(1, 6)), RuntimeError,
         "can be compiled, not run"),
        (lambda: build().profile_figures, RuntimeError, "the model is not compiled yet"),
        (lambda: build().plan, RuntimeError, "the model is not compiled yet"),
        (lambda: build().device, RuntimeError, "the model is not compiled yet"),
    ],
)
def test_bad_input_is_one_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_names_of_tensors_are_those_of_parameters_and_buffers(monkeypatch):
    from ipu.frontends.poptorch import dictionary

    monkeypatch.setattr(dictionary, "_told", set())
    model = build()
    with pytest.raises(AssertionError, match="Model must be compiled before calling getTensorName"):
        model.getTensorNames()
    model.compile(*data(21))
    with pytest.warns(UserWarning, match="results of operations have no names"):
        names = model.getTensorNames()
    assert set(names) == set(model.model.state_dict())


def test_a_pattern_of_no_layer_is_refused_when_the_session_ends():
    """The engine has backward passes and updates of its own."""

    def work(pattern):
        with session_of({pattern: "f16"}):
            build()(*data(21))

    with pytest.raises(ValueError, match="'haed' matches no layer"):
        work("haed")
    work("norm")
