"""The machine of a model: its own session, or that of the program (law)."""

from __future__ import annotations

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


def inside(strategy, **settings):
    """A float32 training inside of a session of the program."""
    with session_of(**settings) as session:
        model, _ = train(options(STRATEGIES[strategy](), sr=False), half=False)
    return model, session


def test_a_model_computes_in_the_session_that_is_open():
    model, session = inside("unsplit", policy="p=f16,c=f16", sr=True, count=True, ties="all")
    for x in model.model.parameters():
        assert torch.equal(x, x.half().float())
    report = session.report()
    assert report["native"] == 0
    assert report["steps"] == 2
    assert {"a", "b", "norm", "optimizer"} <= set(report["layers"])


def test_the_policy_of_a_session_moves_no_bit_with_the_plan():
    half = {"policy": "p=f16,c=f16", "sr": True, "seed": 3}
    one, _ = inside("unsplit", **half)
    two, _ = inside("pipelined", **half)
    three, _ = inside("unsplit", **half | {"seed": 4})
    assert same(bits(one), bits(two))
    assert not same(bits(one), bits(three))


def test_options_switch_on_what_the_session_has_not():
    with session_of() as session:
        model, _ = train(options(STRATEGIES["unsplit"](), sr=True), steps=1)
        assert not session.device.control.esr
    assert not same(
        bits(model), bits(train(options(STRATEGIES["unsplit"](), sr=False), steps=1)[0])
    )


def test_dropout_masks_belong_to_the_micro_batch_and_the_host_keeps_its_state():
    class Masks(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.dropout(x, 0.5, training=True)

    run_options = poptorch.Options().deviceIterations(2)
    state = torch.get_rng_state()
    first = poptorch.inferenceModel(Masks(), run_options)(torch.ones(2, 64))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(first[0], first[1])
    torch.rand(5)
    again = poptorch.inferenceModel(Masks(), run_options.clone())
    assert torch.equal(again(torch.ones(2, 64)), first)


def test_two_models_train_side_by_side():
    alone = bits(train(options(STRATEGIES["unsplit"]()))[0])
    nets = [Net().half() for _ in range(2)]
    models = [
        poptorch.trainingModel(net, options(STRATEGIES["unsplit"]()), sgd(net.parameters()))
        for net in nets
    ]
    for step in range(2):
        for model in models:
            model(*data(21, True, step))
    assert same(alone, bits(models[0]))
    assert same(alone, bits(models[1]))
