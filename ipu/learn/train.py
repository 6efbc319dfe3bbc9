"""The order of a training step, which nothing else knows.

cast to the compute format → forward → loss × scale → backward → unscale → optimiser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from ipu.learn import losses
from ipu.learn.loss_scale import LossScale, NoLossScale
from ipu.learn.optim import SGD, Observer, compute_gradients
from ipu.learn.policy import FP32, PolicyLike
from ipu.learn.state import Number, Positioned, State, restore, take
from ipu.learn.tensor import Tensor
from ipu.learn.variables import Variable, Variables, policy_getter, variable_scope
from ipu.machine.control import POWER_ON, FpCtl
from ipu.machine.device import Device

__all__ = ["Trainer"]

Model = Callable[[Tensor], Tensor]
Labels = NDArray[np.integer[Any]]

SCOPE = "all_vars"


class Trainer:
    """A model, its variables on a device, and everything a step needs.

    model        maps a batch to logits; creates its variables with `get_variable`.
    policy       formats of parameters, computation and partials.
    loss_scale   with its route back.
    seed         of the initial values and of the device's random bits.
    observe      is told of every update of a variable.
    machine      further arguments of the `Device`: target, preset, f32_denormals, count …

    >>> from ipu.learn.nn import dense
    >>> trainer = Trainer(lambda x: dense(x, 2, "only"), SGD(0.5))
    >>> x, labels = np.eye(2), np.array([0, 1])
    >>> [round(trainer.step(x, labels), 3) for _ in range(3)][-1] < 0.8
    True
    """

    def __init__(
        self,
        model: Model,
        optimizer: SGD,
        *,
        policy: PolicyLike = FP32,
        control: FpCtl = POWER_ON,
        loss_scale: LossScale | None = None,
        seed: int = 0,
        observe: Observer | None = None,
        **machine: Any,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.policy = policy
        self.loss_scale = loss_scale or NoLossScale()
        self.observe = observe
        partials = policy.default.partials
        self.device = Device(control=control, seed=seed, partials=partials, **machine)
        self.variables = Variables(self.device, seed, policy)
        self.slots: dict[str, tuple[Array, ...]] = {}

    def forward(self, x: ArrayLike | Array) -> Tensor:
        """Logits of a batch; the first call creates the variables."""
        reuse = len(self.variables) > 0
        inputs = Tensor(self._input(x), self.device, "input")
        with (
            self.variables,
            variable_scope(SCOPE, use_resource=True, custom_getter=policy_getter, reuse=reuse),
        ):
            return self.model(inputs)

    def _input(self, x: ArrayLike | Array) -> Array:
        if isinstance(x, Array):
            return self.device.cast(x, self.policy.default.activations)
        return self.device.from_host(x, self.policy.default.activations)

    def loss(self, x: ArrayLike | Array, labels: Labels) -> Tensor:
        """Mean cross-entropy of a batch, unscaled."""
        logits = self.forward(x)
        with self.device.naming("loss"):
            return losses.sparse_softmax_cross_entropy(logits, labels)

    def scaled_gradients(self, loss: Tensor) -> list[tuple[Array, Variable]]:
        """Gradients of loss × scale, as the backward pass leaves them."""
        with self.device.naming("loss"):
            scaled = self.loss_scale.scale(loss)
        return compute_gradients(scaled, self.variables.trainable)

    def step(self, x: ArrayLike | Array, labels: Labels) -> float:
        """One step of training; the loss of the batch before it.

        Raises    FloatingPointTrap where the control register arms one; no variable has changed.
        """
        loss = self.loss(x, labels)
        pairs = self.scaled_gradients(loss)
        unscaled = self.loss_scale.unscale(self.device, pairs)
        self.slots = self.optimizer.apply_gradients(
            unscaled,
            self.slots,
            rate=self.loss_scale.learning_rate(self.optimizer.rate),
            observe=self.observe,
        )
        self.loss_scale = self.loss_scale.successor(pairs)
        return float(loss.array)

    def accuracy(self, x: ArrayLike | Array, labels: Labels) -> float:
        """Share of a batch that the model gets right."""
        return losses.accuracy(self.forward(x).array, labels)

    def state(
        self, source: Positioned | None = None, progress: Mapping[str, Number] | None = None
    ) -> State:
        """Everything that the next step depends on, and the numbers of `progress`."""
        return take(self, source, progress)

    def restore(self, state: State, source: Positioned | None = None) -> None:
        """Go on from a state; see `ipu.learn.state.restore`."""
        restore(self, state, source)
