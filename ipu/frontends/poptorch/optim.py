"""Optimisers: torch's, with PopTorch's arguments; the model applies them by PopART's equations.

torch's own SGD, Adam, AdamW and RMSprop may be passed too: they are applied by the same equations,
with the arguments that they lack at their defaults.

>>> from ipu.frontends import poptorch
>>> layer = torch.nn.Linear(2, 1)
>>> optimizer = poptorch.optim.SGD(layer.parameters(), lr=0.1, loss_scaling=128.0)
>>> poptorch.trainingModel(layer, optimizer=optimizer).optimizer is optimizer
True

Source    Graphcore's PopTorch, python/optim.py: arguments, defaults, what is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from ipu.ops.updates import UPDATES, UpdateRow

__all__ = [
    "LAMB",
    "SGD",
    "Adam",
    "AdamW",
    "RMSprop",
    "check_optimizer",
    "load_slots",
    "rule_of",
    "slots_of",
]

#: Formats of accumulators and slots that PopART has.
_TYPES = (torch.float16, torch.float32)

#: Arguments that torch's optimisers lack.
_COMMON: dict[str, Any] = {
    "loss_scaling": 1.0, "accum_type": torch.float32, "max_grad_norm": float("inf"),
}
_SGD = _COMMON | {
    "velocity_scaling": 1.0, "use_combined_accum": False, "velocity_accum_type": torch.float32,
}
_ADAM = _COMMON | {
    "first_order_momentum_accum_type": torch.float32,
    "second_order_momentum_accum_type": torch.float32,
    "bias_correction": True,
}
_RMSPROP = _ADAM | {"use_tf_variant": False}


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    """Arguments of PopTorch's own, when they are what they must be."""
    for name, value in values.items():
        if name.endswith("accum_type") and value not in _TYPES:
            raise ValueError(f"{name}={value!r}: use torch.float32 or torch.float16")
        if name.endswith("scaling") and not value > 0:
            raise ValueError(f"{name}={value!r}: use a number above 0")
        if name == "max_grad_norm" and (value is None or not value > 0):
            raise ValueError(f"{name}={value!r}: use a number above 0, or float('inf')")
    return values


class _OnDevice:
    """Adds PopTorch's arguments to the groups; a step is a part of the model's call."""

    defaults: dict[str, Any]
    param_groups: list[dict[str, Any]]

    def _add(self, values: dict[str, Any]) -> None:
        self.defaults.update(_checked(values))
        for group in self.param_groups:
            for name, value in values.items():
                group.setdefault(name, value)

    def step(self, closure: Callable[[], float] | None = None) -> None:
        """Refused: the device applies the optimiser when the training model is called."""
        raise RuntimeError(
            f"{type(self).__name__}.step() runs on the device, with each call of the model that "
            "poptorch.trainingModel returned; leave the call out"
        )

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load groups and state; slots keep their types, where torch gives them the weight's."""
        super().load_state_dict(state_dict)  # type: ignore[misc]
        load_slots(self, state_dict)


def load_slots(optimizer: Any, state_dict: dict[str, Any]) -> None:
    """The slots of a state as they were saved."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for number, slots in state_dict["state"].items():
        state = optimizer.state[parameters[number]]
        for name, value in slots.items():
            state[name] = value.detach().clone() if isinstance(value, torch.Tensor) else value


class SGD(_OnDevice, torch.optim.SGD):  # type: ignore[misc]
    """Stochastic gradient descent.

    loss_scaling           the loss is multiplied by it, gradients are divided by it.
    velocity_scaling       the velocity is kept multiplied by it; with use_combined_accum only.
    use_combined_accum     one tensor holds velocity and accumulated gradient.
    accum_type, velocity_accum_type    torch.float32 or torch.float16.
    max_grad_norm          gradients are scaled down to this norm of all of them, of all groups.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> SGD([weight], lr=0.1, momentum=0.9, loss_scaling=64.0).defaults["loss_scaling"]
    64.0
    >>> SGD([weight], lr=0.1, velocity_scaling=2.0)
    Traceback (most recent call last):
    ...
    ValueError: velocity_scaling=2.0: is used with use_combined_accum=True only
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0, dampening: float = 0,
        weight_decay: float = 0, nesterov: bool = False, maximize: bool = False,
        foreach: bool = False, differentiable: bool = False, loss_scaling: float = 1.0,
        velocity_scaling: float | None = None, use_combined_accum: bool = False,
        accum_type: torch.dtype = torch.float32,
        velocity_accum_type: torch.dtype = torch.float32, max_grad_norm: float = float("inf"),
    ) -> None:
        _refuse(maximize=maximize, foreach=foreach, differentiable=differentiable)
        if velocity_scaling not in (None, 1.0) and not use_combined_accum:
            raise ValueError(
                f"velocity_scaling={velocity_scaling}: is used with use_combined_accum=True only"
            )
        if use_combined_accum and accum_type != velocity_accum_type:
            raise ValueError(
                f"accum_type={accum_type} and velocity_accum_type={velocity_accum_type}: one "
                "tensor has one type; use the same with use_combined_accum=True"
            )
        super().__init__(params, lr, momentum, dampening, weight_decay, nesterov, foreach=False)
        self._add({
            "loss_scaling": loss_scaling,
            "velocity_scaling": 1.0 if velocity_scaling is None else velocity_scaling,
            "use_combined_accum": use_combined_accum, "accum_type": accum_type,
            "velocity_accum_type": velocity_accum_type, "max_grad_norm": max_grad_norm,
        })


class Adam(_OnDevice, torch.optim.Adam):  # type: ignore[misc]
    """Adam; a weight decay is added to the gradient. AMSGrad is refused, as by PopART.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> Adam([weight], amsgrad=True)
    Traceback (most recent call last):
    ...
    ValueError: amsgrad=True is not supported by PopTorch; leave amsgrad out
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 0, amsgrad: bool = False, foreach: bool = False,
        maximize: bool = False, capturable: bool = False, differentiable: bool = False,
        fused: bool = False, loss_scaling: float = 1.0, accum_type: torch.dtype = torch.float32,
        first_order_momentum_accum_type: torch.dtype = torch.float32,
        second_order_momentum_accum_type: torch.dtype = torch.float32,
        max_grad_norm: float = float("inf"),
    ) -> None:
        _refuse(amsgrad=amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
                differentiable=differentiable, fused=fused)
        super().__init__(params, lr, betas, eps, weight_decay, foreach=False)
        self._add({
            "loss_scaling": loss_scaling, "accum_type": accum_type,
            "first_order_momentum_accum_type": first_order_momentum_accum_type,
            "second_order_momentum_accum_type": second_order_momentum_accum_type,
            "max_grad_norm": max_grad_norm, "bias_correction": True,
        })


class AdamW(_OnDevice, torch.optim.AdamW):  # type: ignore[misc]
    """AdamW; bias_correction=False leaves the moments as they are.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> AdamW([weight], first_order_momentum_accum_type=torch.float16).step()
    Traceback (most recent call last):
    ...
    RuntimeError: AdamW.step() runs on the device, with each call of the model that
    poptorch.trainingModel returned; leave the call out
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, amsgrad: bool = False,
        maximize: bool = False, foreach: bool = False, capturable: bool = False,
        differentiable: bool = False, fused: bool = False, loss_scaling: float = 1.0,
        bias_correction: bool = True, accum_type: torch.dtype = torch.float32,
        first_order_momentum_accum_type: torch.dtype = torch.float32,
        second_order_momentum_accum_type: torch.dtype = torch.float32,
        max_grad_norm: float = float("inf"),
    ) -> None:
        _refuse(amsgrad=amsgrad, foreach=foreach, maximize=maximize, capturable=capturable,
                differentiable=differentiable, fused=fused)
        super().__init__(params, lr, betas, eps, weight_decay, foreach=False)
        self._add({
            "loss_scaling": loss_scaling, "accum_type": accum_type,
            "first_order_momentum_accum_type": first_order_momentum_accum_type,
            "second_order_momentum_accum_type": second_order_momentum_accum_type,
            "max_grad_norm": max_grad_norm, "bias_correction": bias_correction,
        })


class RMSprop(_OnDevice, torch.optim.RMSprop):  # type: ignore[misc]
    """RMSprop; use_tf_variant puts eps into the root and the rate into the momentum.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> RMSprop([weight], use_tf_variant=True).defaults["use_tf_variant"]
    True
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-2, alpha: float = 0.99, eps: float = 1e-8,
        weight_decay: float = 0, momentum: float = 0, centered: bool = False,
        maximize: bool = False, foreach: bool = False, differentiable: bool = False,
        loss_scaling: float = 1.0, accum_type: torch.dtype = torch.float32,
        first_order_momentum_accum_type: torch.dtype = torch.float32,
        second_order_momentum_accum_type: torch.dtype = torch.float32,
        use_tf_variant: bool = False, max_grad_norm: float = float("inf"),
    ) -> None:
        _refuse(maximize=maximize, foreach=foreach, differentiable=differentiable)
        super().__init__(params, lr, alpha, eps, weight_decay, momentum, centered, foreach=False)
        self._add({
            "loss_scaling": loss_scaling, "accum_type": accum_type,
            "first_order_momentum_accum_type": first_order_momentum_accum_type,
            "second_order_momentum_accum_type": second_order_momentum_accum_type,
            "use_tf_variant": use_tf_variant, "max_grad_norm": max_grad_norm,
        })


class LAMB(_OnDevice, torch.optim.Optimizer):  # type: ignore[misc]
    """LAMB: Adam's update, scaled for each parameter by the ratio of norms.

    max_weight_norm    the norm of the parameter counts at most so much.

    >>> weight = torch.nn.Parameter(torch.ones(1))
    >>> LAMB([weight]).defaults["max_weight_norm"]  # PopTorch's own default
    65500.0
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8, weight_decay: float = 1e-2, bias_correction: bool = True,
        loss_scaling: float = 1.0, max_weight_norm: float | None = None,
        accum_type: torch.dtype = torch.float32,
        first_order_momentum_accum_type: torch.dtype = torch.float32,
        second_order_momentum_accum_type: torch.dtype = torch.float32,
        max_grad_norm: float = float("inf"),
    ) -> None:
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if value < 0:
                raise ValueError(f"{name}={value}: use 0 or more")
        if not all(0 <= b < 1 for b in betas):
            raise ValueError(f"betas={betas}: use numbers from 0 to below 1")
        super().__init__(
            params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        )
        self._add({
            "loss_scaling": loss_scaling, "accum_type": accum_type,
            "first_order_momentum_accum_type": first_order_momentum_accum_type,
            "second_order_momentum_accum_type": second_order_momentum_accum_type,
            "max_grad_norm": max_grad_norm, "bias_correction": bias_correction,
            # PopTorch's own default, the largest binary16 norm in round figures.
            "max_weight_norm": 65500.0 if max_weight_norm is None else max_weight_norm,
        })


def _refuse(**switches: bool) -> None:
    """Switches of torch that PopART's optimisers do not have."""
    for name, value in switches.items():
        if value:
            raise ValueError(f"{name}={value} is not supported by PopTorch; leave {name} out")


# What the model asks ----------------------------------------------------------------------------

#: Row of each kind of optimiser, and arguments that it has where groups lack them.
_RULES: tuple[tuple[type, str, dict[str, Any]], ...] = (
    (torch.optim.SGD, "popart sgd", _SGD),
    (torch.optim.AdamW, "popart adam", _ADAM | {"decoupled": True}),
    (torch.optim.Adam, "popart adam", _ADAM | {"decoupled": False}),
    (torch.optim.RMSprop, "popart rmsprop", _RMSPROP),
    (LAMB, "popart lamb", _ADAM),
)


def check_optimizer(optimizer: Any) -> None:
    """Refuses what PopART has no equations for.

    Raises    TypeError for another optimiser; ValueError for a switch that PopART lacks.
    """
    if not any(isinstance(optimizer, kind) for kind, _, _ in _RULES):
        raise TypeError(
            f"optimizer={type(optimizer).__name__} is not supported; use one of poptorch.optim: "
            "SGD, Adam, AdamW, RMSprop, LAMB"
        )
    for group in optimizer.param_groups:
        _refuse(**{n: bool(group.get(n)) for n in ("amsgrad", "maximize", "differentiable")})


def rule_of(optimizer: torch.optim.Optimizer) -> tuple[UpdateRow, dict[str, Any]]:
    """The equation of an optimiser, and values of arguments that its groups lack."""
    for kind, name, missing in _RULES:
        if isinstance(optimizer, kind):
            return UPDATES[name], missing
    raise AssertionError(optimizer)


def slots_of(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> dict[str, torch.dtype]:
    """Names and types of the state that an optimiser keeps for each parameter of a group."""
    first = group.get("first_order_momentum_accum_type", torch.float32)
    second = group.get("second_order_momentum_accum_type", torch.float32)
    if isinstance(optimizer, torch.optim.SGD):
        has_velocity = group["momentum"] or group["use_combined_accum"]
        return {"velocity": group["velocity_accum_type"]} if has_velocity else {}
    if isinstance(optimizer, torch.optim.RMSprop):
        slots = {"square_avg": first}
        if group["centered"]:
            slots["grad_avg"] = second
        if group["momentum"]:
            slots["momentum_buffer"] = torch.float32
        return slots
    return {"step": torch.float32, "exp_avg": first, "exp_avg_sq": second}
