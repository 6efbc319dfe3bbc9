"""The order of resolution: table, exact, decomposition, host, refusal (golden, law)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.torch.framework import machine, torch

pytest.importorskip("ipu.frontends.torch.mode")


def operations(work, policy="f32"):
    with machine(policy) as session:
        work()
    return session.report()["operations"], session


@pytest.mark.parametrize(
    ("work", "kind"),
    [
        (lambda: torch.ones(3) * 2.0, "machine"),
        (lambda: torch.ones(3).view(3, 1), "exact"),
        (lambda: torch.ones(3).cos(), "host"),
        (lambda: torch.arange(3) + 1, "integer"),
    ],
)
def test_kinds(work, kind):
    counted, _ = operations(work)
    assert counted[kind] >= 1
    assert counted["all"] == sum(counted[k] for k in ("machine", "exact", "host", "integer"))
    assert not [k for k in ("machine", "host", "integer") if k != kind and counted[k]]


def test_what_has_no_rule_is_refused_with_its_name_and_layer():
    x = torch.ones(3, requires_grad=True)
    library = torch.library.Library("fpsim_tests", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")

    class Net(torch.nn.Linear):
        def forward(self, x):
            return torch.ops.fpsim_tests.twice(x.detach())

    net = Net(3, 3)
    sentence = r"fpsim_tests.twice.default in layer 'Net' \(forward\), at .*, has no rule"
    with machine(), pytest.raises(NotImplementedError, match=sentence):
        net(x)


def test_composite_operations_are_cut_into_operations_of_the_table():
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3))
    with torch.inference_mode():
        counted, _ = operations(lambda: net(torch.ones(4, 3)))
    assert counted["host"] == 0


def test_decompositions_of_ours_stay_on_the_machine():
    x = torch.linspace(-4, 4, 9, requires_grad=True)
    with machine() as session:
        y = torch.nn.functional.hardswish(x)
        y.sum().backward()
    torch.testing.assert_close(y, torch.nn.functional.hardswish(x.detach()))
    assert session.report()["host"]["elements"] == 0


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", ["smooth_l1_loss", "huber_loss", "mse_loss", "l1_loss"])
def test_losses_of_no_numbers_have_gradients_of_none(name, reduction):
    x = torch.zeros(0, 3, requires_grad=True)
    with machine():
        loss = getattr(torch.nn.functional, name)(x, torch.zeros(0, 3), reduction=reduction)
        loss.sum().backward()
    assert x.grad.shape == (0, 3)


#: Losses of two pieces, and the name of the number that bounds the quadratic one.
PIECES = [("smooth_l1_loss", "beta"), ("huber_loss", "delta")]


def _of_pieces(name, options, **choices):
    """The terms of a loss, its gradient, and what saturates in it."""
    x = torch.linspace(-400, 400, 801).requires_grad_()
    with machine("fp16", count=True, **choices) as run:
        y = getattr(torch.nn.functional, name)(x, torch.zeros(801), reduction="none", **options)
        y.sum().backward()
    births = [b for b in run.report()["births"] if b["kind"] == "saturation"]
    return y.detach(), x.grad, sum(b["count"] for b in births)


@pytest.mark.parametrize(("name", "bound"), PIECES)
def test_squares_that_a_loss_does_not_select_are_not_computed(name, bound):
    """That of 400 is beyond binary16; the loss is linear there, or it is not."""
    assert _of_pieces(name, {bound: 1.0})[2] == 0
    assert _of_pieces(name, {bound: 500.0})[2] > 0


@pytest.mark.parametrize(("name", "bound"), PIECES)
def test_losses_of_pieces_are_those_of_torchs_words(name, bound, monkeypatch):
    ours = _of_pieces(name, {bound: 20.0}, sr=True)
    monkeypatch.setattr("ipu.frontends.torch.mode.PIECEWISE", {})
    theirs = _of_pieces(name, {bound: 20.0}, sr=True)
    assert all(map(torch.equal, ours[:2], theirs[:2]))
    assert ours[2] < theirs[2]


def test_results_in_place_are_cast_into_the_tensor_that_takes_them():
    with machine("p=f16,c=f16"):
        x = torch.ones(3, dtype=torch.float16)
        x += torch.full((3,), 0.1)
        y = torch.zeros(3)
        y[1:] = torch.ones(2) * 0.1
        z = y.clone()
        z.mul_(0.3)
    for tensor in (x, y, z):
        assert torch.equal(tensor.float(), tensor.half().float())
    assert x.dtype == torch.float16


def test_recurrent_layers_and_attention_run_on_the_machine():
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(4, 5, batch_first=True)
    attention = torch.nn.MultiheadAttention(5, 1, batch_first=True)
    x = torch.randn(2, 3, 4)
    expected = attention(*(lstm(x)[0],) * 3)[0]
    with machine() as session:
        got = attention(*(lstm(x)[0],) * 3)[0]
        got.square().sum().backward()
    torch.testing.assert_close(got, expected)
    assert session.report()["host"]["share"] < 0.01


def test_a_call_that_nothing_accounts_for_is_counted_as_native(monkeypatch):
    from ipu.frontends.torch.mode import MachineMode

    _, session = operations(lambda: torch.ones(3) + torch.ones(3))
    assert session.report()["native"] == 0
    monkeypatch.setattr(
        MachineMode, "_plan", lambda self, func: lambda args, kwargs: func(*args, **kwargs)
    )
    _, session = operations(lambda: (torch.ones(3) + torch.ones(3)) > 1)
    # Two arrays of ones and their sum; the comparison gives no floating-point number.
    assert session.report()["native"] >= 3


@pytest.mark.filterwarnings("ignore")
def test_derivatives_of_derivatives_by_functions():
    x = torch.tensor([1.0, 2.0])
    with machine() as session:
        hessian = torch.func.hessian(lambda t: (t**3).sum())(x)
    torch.testing.assert_close(hessian, torch.diag(6 * x))
    assert session.report()["native"] == session.report()["host"]["elements"] == 0
