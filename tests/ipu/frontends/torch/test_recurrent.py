"""LSTM layers whose cells run in one call are those of single operations (law, differential)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")

from ipu.frontends.torch import recurrent, repeating
from tests.ipu.frontends.torch.framework import machine, torch
from tests.tiers import pick

_ALL = [(p, sr) for p in ("fp16", "fp32", "p=f32,c=f16") for sr in (False, True)]
POLICIES = pick([("fp16", True), ("fp32", False)], _ALL, _ALL)
#: Options of torch.nn.LSTM.
LAYERS = [
    {}, {"bias": False}, {"num_layers": 2, "dropout": 0.5}, {"batch_first": True},
    {"bidirectional": True, "num_layers": 2},
]
#: What a program makes of the results: outputs, hidden states, cells.
LOSSES = {
    "outputs": lambda y, h, c: y.square().mean(),
    "last output": lambda y, h, c: y[-1].square().mean(),
    "hidden state": lambda y, h, c: h.square().mean(),
    "cell": lambda y, h, c: c.square().mean(),
    "all": lambda y, h, c: y.square().mean() + h.sum() * 0.1 + c.mean(),
    "infinity": lambda y, h, c: y.sum() * float("inf"),
}
_HIDDEN = 8


def _calls(run):
    """What a report tells of operations, and the calls and elements by name."""
    report = run.report()
    calls = {kind: dict(n) for kind, n in run.account._calls.items()}
    elements = {kind: dict(n) for kind, n in run.account._elements.items()}
    told = [report[name] for name in ("operations", "layers", "units", "native", "status")]
    return *told, calls, elements, run.device.vector_cycles


def trained(
    policy, sr, *, in_one_call, loss="outputs", scale=1.0, size=(5, 4), states=None, around=None,
    count=False, **options,
):
    """Bytes of losses, gradients and parameters of three steps, and what the report tells."""
    torch.manual_seed(0)
    net, told = torch.nn.LSTM(6, _HIDDEN, **options), []
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    with machine(policy, sr=sr, count=count) as run:
        run.device.in_one_call = in_one_call
        for step in range(3):
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(*size, 6, generator=generator) * scale
            start = states and states(net, size[1], generator)
            optimiser.zero_grad()
            y, (h, c) = net(x, start) if around is None else around(net, x)
            value = LOSSES[loss](y, h, c)
            if loss == "all" and around is _recorded:
                slopes = torch.autograd.grad(value, list(net.parameters()), create_graph=True)
                value = value + sum(slope.square().sum() for slope in slopes)
            value.backward()
            leaves = [x for x in (*net.parameters(), *(start or ())) if x.requires_grad]
            told += [value.item().hex(), *(p.grad.numpy().tobytes() for p in leaves)]
            if loss != "infinity":
                optimiser.step()
        told.append(_calls(run))
    return told, [p.detach().numpy().tobytes() for p in net.parameters()]


def _recorded(net, x):
    return net(x)


def _checkpointed(net, x):
    return torch.utils.checkpoint.checkpoint(net, x.requires_grad_(), use_reentrant=False)


def _reentrant(net, x):
    return torch.utils.checkpoint.checkpoint(net, x.requires_grad_(), use_reentrant=True)


def _by_columns(net, x):
    """The hidden state's weight lies by columns."""
    weight = net.weight_hh_l0
    weight.data = weight.detach().clone().t().contiguous().t()
    return net(x)


def _evaluated(net, x):
    with torch.no_grad():
        net(x)
    return net(x)


def _states(requires_grad):
    def states(net, batch, generator):
        n = net.num_layers * (1 + net.bidirectional)
        return tuple(
            torch.randn(n, batch, _HIDDEN, generator=generator).requires_grad_(requires_grad)
            for _ in range(2)
        )

    return states


@pytest.fixture
def cells(monkeypatch):
    """Steps, and gradients of steps, as one node; those of both that ran below the handlers."""
    ran = {"_forward": 0, "_backward": 0}

    def counted(name, function):
        def call(*arguments):
            result = function(*arguments)
            ran[name] += result is not None
            return result

        return call

    for name in ran:
        monkeypatch.setattr(recurrent, name, counted(name, getattr(recurrent, name)))
    ran["_again"] = 0
    monkeypatch.setattr(repeating, "_again", counted("_again", repeating._again))
    return ran


def _is_law(cells, policy, sr, *, joins=True, **how):
    joined = trained(policy, sr, in_one_call=True, **how)
    assert (cells["_forward"] > 0) == joins
    assert (cells["_backward"] > 0) == joins
    n = cells["_forward"]
    assert joined == trained(policy, sr, in_one_call=False, **how)
    assert cells["_forward"] == n


@pytest.mark.parametrize(("policy", "sr"), POLICIES)
@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_layers_in_one_call_are_those_of_single_operations(cells, policy, sr, options):
    _is_law(cells, policy, sr, **options)


@pytest.mark.parametrize(("policy", "sr"), POLICIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_whatever_the_loss_reads(cells, policy, sr, loss):
    _is_law(cells, policy, sr, loss=loss)


@pytest.mark.parametrize("options", [{"bias": False}, {}], ids=str)
@pytest.mark.parametrize(("policy", "sr"), POLICIES)
def test_steps_alike_run_below_the_handlers(cells, policy, sr, options):
    _is_law(cells, policy, sr, size=(8, 4), **options)
    assert cells["_again"] > cells["_forward"]


def test_a_step_without_a_number_runs_as_it_is_written(cells):
    """Gradients that are NaN send cells back to single operations; the next step goes on."""
    _is_law(cells, "fp16", True, size=(8, 4), loss="infinity")
    assert 0 < cells["_again"] < cells["_forward"] + cells["_backward"]


def _with_other_weights(net, x):
    for parameter in net.parameters():
        parameter.data = parameter.data.clone()
    return net(x)


def _frozen(net, x):
    net.weight_hh_l0.requires_grad_(False)
    if net.bias:
        net.bias_hh_l0.requires_grad_(False)
    return net(x)


def _twice(net, x):
    """The weights get gradients of two layers, and of themselves."""
    y, (h, c) = net(x)
    z, _ = net(x.flip(0), (h, c))
    return y + z * net.weight_hh_l0.square().sum(), (h, c)


def test_products_in_blocks_run_alone(cells):
    _is_law(cells, "mxfp8", False, joins=False, size=(5, 32))


def _by_steps(net, x):
    """One step a call; states go on."""
    outputs, state = [], None
    for part in x.split(1):
        y, state = net(part, state)
        outputs.append(y)
    return torch.cat(outputs), state


def _of_one_state(net, x):
    """Hidden state and cell begin as one tensor, which the loss reads too."""
    start = x.mean() * torch.ones(1, x.shape[1], _HIDDEN) * net.weight_hh_l0.mean()
    y, state = net(x, (start, start))
    return y * start, state


@pytest.mark.parametrize("around", [_by_steps, _of_one_state])
@pytest.mark.parametrize("loss", ["all", "outputs"])
def test_states_that_go_on(cells, around, loss):
    _is_law(cells, "fp16", True, around=around, loss=loss)


@pytest.mark.parametrize("around", [_with_other_weights, _twice, _frozen])
@pytest.mark.parametrize("bias", [False, True])
def test_weights_elsewhere(cells, around, bias):
    _is_law(cells, "fp16", True, size=(8, 4), around=around, bias=bias)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_states_of_the_program(cells, requires_grad):
    _is_law(cells, "fp16", True, states=_states(requires_grad), loss="all", num_layers=2)


@pytest.mark.parametrize("size", [(1, 4), (2, 4), (3, 4), (5, 1), (4, 2)], ids=str)
def test_short_sequences_and_single_examples(cells, size):
    _is_law(cells, "fp16", True, size=size)


def test_sums_that_overflow(cells):
    _is_law(cells, "fp16", True, scale=3e4, loss="all")


@pytest.mark.parametrize("around", [_reentrant, _evaluated])
def test_recomputation_and_evaluation_between(cells, around):
    _is_law(cells, "fp16", True, around=around)


@pytest.mark.parametrize("how", [
    {"around": _checkpointed}, {"loss": "all", "around": _recorded},
    {"count": True}, {"proj_size": 3}, {"around": _by_columns},
], ids=[
    "saved tensors", "gradients of gradients", "counted", "projected", "weights by columns",
])
def test_what_looks_at_operations_runs_them_alone(cells, how):
    _is_law(cells, "fp16", True, joins=False, **how)


def test_derivatives_of_derivatives_behind_a_cell_in_one_call(cells):
    """Those of a session that has not recorded a pass before: to nearest, they are equal."""

    def slopes(in_one_call):
        torch.manual_seed(0)
        net, x = torch.nn.LSTM(6, _HIDDEN), torch.randn(4, 3, 6)
        with machine("fp32") as run:
            run.device.in_one_call = in_one_call
            net(x)[0].square().mean().backward()
            weights = list(net.parameters())
            y, (h, c) = net(x)
            first = torch.autograd.grad(LOSSES["all"](y, h, c), weights, create_graph=True)
            second = torch.autograd.grad(sum(g.square().sum() for g in first), weights)
            return [g.detach().numpy().tobytes() for g in (*first, *second)]

    joined = slopes(True)
    assert cells["_forward"] > 0
    assert joined == slopes(False)


_SOME = {
    "weights": lambda net, start: list(net.parameters()),
    "weight": lambda net, start: [net.weight_hh_l0],
    "bias": lambda net, start: [net.bias_hh_l0],
    "weight of input": lambda net, start: [net.weight_ih_l0],
    "hidden state": lambda net, start: start[:1],
    "cell": lambda net, start: start[1:],
}


@pytest.mark.parametrize("loss", ["all", "cell"])
@pytest.mark.parametrize("names", _SOME)
def test_gradients_of_some_tensors_ask_for_nothing_else(cells, names, loss):
    """Others that could have a gradient draw no random bits, and cost no cycles."""

    def slopes(in_one_call):
        torch.manual_seed(0)
        net, told = torch.nn.LSTM(6, _HIDDEN), []
        with machine("fp16", sr=True) as run:
            run.device.in_one_call = in_one_call
            net(torch.randn(2, 3, 6))[0].square().mean().backward()
            for _ in range(4):
                start = [torch.randn(1, 3, _HIDDEN, requires_grad=True) for _ in range(2)]
                y, (h, c) = net(torch.randn(3, 3, 6), start)
                got = torch.autograd.grad(LOSSES[loss](y, h, c), _SOME[names](net, start))
                told += [slope.numpy().tobytes() for slope in got]
            return told, _calls(run), dict(run.device.ledger.rows)

    joined = slopes(True)
    assert cells["_forward"] > 0
    assert joined == slopes(False)


def test_names_of_torch_are_its_own_outside():
    before = torch.lstm
    with machine("fp16"):
        assert torch.lstm is not before
    assert torch.lstm is before
    assert "lstm" not in vars(torch._VF)


def test_torch_tells_of_arguments_that_do_not_fit():
    net = torch.nn.LSTM(3, 4)
    x, state = torch.ones(2, 1, 3), torch.zeros(1, 1, 4)
    with machine("fp16"):
        net(x)[0].sum().backward()
        with pytest.raises(TypeError, match="lstm"):
            torch.lstm(x, (state, state), 3)
        with pytest.raises(RuntimeError, match="Expected hidden"):
            net(x, (torch.zeros(1, 2, 4), torch.zeros(1, 2, 4)))
