"""Optimisers: arguments, refusals, torch's own (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch, torch

from ipu.frontends.poptorch.optim import check_optimizer, slots_of  # isort: skip

OPTIM = poptorch.optim
HALF = torch.float16


def parameters():
    return [torch.nn.Parameter(torch.ones(3))]


@pytest.mark.source("S2-17")
def test_arguments_have_poptorchs_defaults():
    (group,) = OPTIM.AdamW(parameters(), lr=0.001).param_groups
    assert (group["loss_scaling"], group["bias_correction"]) == (1.0, True)
    assert group["accum_type"] is group["first_order_momentum_accum_type"] is torch.float32
    (group,) = OPTIM.SGD(parameters(), lr=0.1).param_groups
    assert (group["use_combined_accum"], group["velocity_scaling"]) == (False, 1.0)
    (group,) = OPTIM.LAMB(parameters()).param_groups
    assert (group["max_weight_norm"], group["weight_decay"]) == (65500.0, 0.01)
    assert not OPTIM.RMSprop(parameters()).param_groups[0]["use_tf_variant"]


def test_slots_have_the_types_that_were_asked_for():
    def slots(optimizer):
        return slots_of(optimizer, optimizer.param_groups[0])

    assert slots(OPTIM.SGD(parameters(), velocity_accum_type=HALF)) == {}
    assert slots(OPTIM.SGD(parameters(), momentum=0.9, velocity_accum_type=HALF)) == {
        "velocity": HALF
    }
    adam = OPTIM.Adam(parameters(), first_order_momentum_accum_type=HALF)
    assert slots(adam) == {
        "step": torch.float32, "exp_avg": HALF, "exp_avg_sq": torch.float32,
    }
    rms = OPTIM.RMSprop(parameters(), momentum=0.5, centered=True)
    assert list(slots(rms)) == ["square_avg", "grad_avg", "momentum_buffer"]


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop"])
def test_torchs_own_are_taken(name):
    check_optimizer(getattr(torch.optim, name)(parameters(), lr=0.1))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: OPTIM.SGD(parameters(), maximize=True), ValueError, "maximize=True is not supp"),
        (lambda: OPTIM.Adam(parameters(), amsgrad=True), ValueError, "amsgrad=True is not supp"),
        (lambda: OPTIM.AdamW(parameters(), accum_type=torch.bfloat16), ValueError,
         "accum_type=torch.bfloat16: use torch.float32 or torch.float16"),
        (lambda: OPTIM.SGD(parameters(), loss_scaling=0), ValueError, "use a number above 0"),
        (lambda: OPTIM.SGD(parameters(), velocity_scaling=2.0), ValueError, "use_combined_accum"),
        (lambda: OPTIM.SGD(parameters(), use_combined_accum=True, accum_type=HALF), ValueError,
         "one tensor has one type"),
        (lambda: OPTIM.RMSprop(parameters(), max_grad_norm=-1), ValueError, "max_grad_norm=-1"),
        (lambda: OPTIM.LAMB(parameters(), lr=-1), ValueError, "lr=-1: use 0 or more"),
        (lambda: OPTIM.LAMB(parameters(), betas=(1, 0)), ValueError, "betas=.* from 0 to below 1"),
        (lambda: OPTIM.SGD(parameters()).step(), RuntimeError, "runs on the device, with each"),
        (lambda: check_optimizer(torch.optim.Adagrad(parameters())), TypeError,
         "optimizer=Adagrad is not supported; use one of poptorch.optim"),
        (lambda: check_optimizer(torch.optim.Adam(parameters(), amsgrad=True)), ValueError,
         "amsgrad=True is not supported"),
    ],
)
def test_bad_input_is_one_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_loading_a_state_keeps_the_types_of_slots():
    weights = [torch.nn.Parameter(torch.ones(2).half())]
    one, two = (OPTIM.SGD(weights, lr=0.1, momentum=0.9) for _ in range(2))
    one.state[weights[0]]["velocity"] = torch.tensor([0.1, 0.2])
    two.load_state_dict(one.state_dict())
    assert torch.equal(two.state[weights[0]]["velocity"], torch.tensor([0.1, 0.2]))


_SWITCHES = ("maximize", "foreach", "differentiable")
_OF_ADAM = (*_SWITCHES, "amsgrad", "capturable", "fused")


@pytest.mark.parametrize(
    ("optimiser", "switch"),
    [(name, switch) for name in ("SGD", "RMSprop") for switch in _SWITCHES]
    + [(name, switch) for name in ("Adam", "AdamW") for switch in _OF_ADAM],
)
def test_no_switch_of_torch_is_ignored(optimiser, switch):
    with pytest.raises(ValueError, match=f"{switch}=True is not supported by PopTorch"):
        getattr(OPTIM, optimiser)(parameters(), lr=0.1, **{switch: True})
