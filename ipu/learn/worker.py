"""Worker: a model's variables on one device, and what a training step does there.

A training has one; with replicas it has one for each. The worker knows no order of a step: it runs
layers in the scope of the model, computes losses, and applies gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.array import Array
from fpsim.state.processor import usual_arithmetic_in
from ipu import ops
from ipu.learn import losses
from ipu.learn.address import Numbering, Region
from ipu.learn.loss_scale import LossScale
from ipu.learn.mode import PendingUpdates
from ipu.learn.optim import Observer, Optimizer, Pairs
from ipu.learn.policy import PolicyLike
from ipu.learn.tensor import Tensor
from ipu.learn.variables import Variables, policy_getter, variable_scope
from ipu.machine.device import Device

__all__ = ["SCOPE", "AllOrNone", "Labels", "Rules", "Worker"]

Labels = NDArray[np.integer[Any]]

#: Around operations of a step, which draw as it does.
_IN_STEP = nullcontext()

#: The scope around every model.
SCOPE = "all_vars"


class Rules(Protocol):
    """What an update follows: `ipu.learn.train.Trainer` is one."""

    optimizer: Optimizer
    loss_scale: LossScale


@usual_arithmetic_in("input", "loss", "update", "all_or_none", "evaluating")
class Worker:
    """A model's variables on one device, and what a training step does there.

    device      whose random bits the worker numbers from now on.
    seed        of the initial values.
    replica, private, nearest    as in `ipu.learn.address.Numbering`.
    """

    def __init__(
        self, device: Device, seed: int, policy: PolicyLike, replica: int = 0, *,
        private: bool = False, nearest: bool = False,
    ) -> None:
        self.device = device
        self.policy = policy
        self.numbering = Numbering(device, replica, private=private, nearest=nearest)
        self.variables = Variables(device, seed, policy, SCOPE)
        self._is_evaluating = False
        #: Called with the losses of batches in steps; evaluations then count apart.
        self.note_loss: Callable[[Array], object] | None = None
        #: The optimiser's memory of each variable, by the variable's name.
        self.slots: dict[str, tuple[Array, ...]] = {}

    #: Mean cross-entropy of a batch.
    cross_entropy = staticmethod(losses.sparse_softmax_cross_entropy)

    # Layers ---------------------------------------------------------------------------------

    @contextmanager
    def layers(self, *, reuse: bool) -> Iterator[None]:
        """Layers inside create the worker's variables, or share those that are there.

        What is created inside is forgotten after an error.
        """
        with (
            self.all_or_none(),
            self.variables,
            variable_scope(SCOPE, use_resource=True, custom_getter=policy_getter, reuse=reuse),
        ):
            yield

    def input(self, x: ArrayLike | Array) -> Tensor:
        """A batch in the format of the model's activations."""
        fmt = self.policy.default.activations
        inputs = self.device.cast(x, fmt) if isinstance(x, Array) else self.device.from_host(x, fmt)
        if inputs.size == 0:
            raise ValueError(f"a batch of shape {inputs.shape} holds no samples; pass one or more")
        return Tensor(inputs, self.device, "input")

    def loss(self, logits: Tensor, labels: Labels) -> Tensor:
        """Mean cross-entropy of a batch plus the regularisers of the variables, unscaled."""
        with self.device.naming("loss"):
            loss = self.cross_entropy(logits, labels)
        regularization = self.variables.regularization_loss()
        if regularization is not None:
            with self.device.naming("loss"):
                loss = ops.add(loss, regularization)
        if self.note_loss is not None and not self._is_evaluating:
            self.note_loss(loss.array)
        return loss

    def evaluating(self, *, anew: bool = True) -> AbstractContextManager[None]:
        """Operations inside draw as an evaluation does; inside a step as the step does.

        anew    from the first address of evaluations; else after those before.
        """
        return _IN_STEP if self.numbering.is_drawing else self._evaluating(anew=anew)

    @contextmanager
    def _evaluating(self, *, anew: bool) -> Iterator[None]:
        if anew:
            self.numbering.restart(Region.EVALUATE)
        self._is_evaluating = True
        is_told = self.note_loss is not None
        apart = self.device.counting_apart("evaluation") if is_told else nullcontext()
        try:
            with self.numbering.cell(Region.EVALUATE), apart:
                yield
        finally:
            self._is_evaluating = False

    # Steps ----------------------------------------------------------------------------------

    def update(
        self, pairs: Pairs, updates: PendingUpdates, rules: Rules, following: LossScale, *,
        applied: bool,
        observe: Observer | None, slots: dict[str, tuple[Array, ...]] | None = None,
    ) -> dict[str, tuple[Array, ...]]:
        """The slots after the variables have taken their step.

        following    the loss scale of the next step.
        applied      whether the gradients are applied; slots are rescaled in any case.
        slots        before the step; default: the worker's.
        """
        scale = rules.loss_scale
        slots = self.slots if slots is None else slots
        with self.numbering.in_use(), self.numbering.cell(Region.OPTIMIZER):
            if applied:
                slots = scale.optimizer(rules.optimizer).apply_gradients(
                    scale.unscale(self.device, pairs), slots, observe=observe
                )
                updates.apply()
            if scale.scales_slots and following.value != scale.value:
                ratio = following.value / scale.value
                slots = rules.optimizer.rescaled(self.device, slots, ratio)
        return slots

    def all_or_none(self) -> AllOrNone:
        """Changes inside hold for all variables, or after an error for none."""
        return AllOrNone([self.variables])


class AllOrNone:
    """Changes inside hold for all variables of these models, or after an error for none."""

    def __init__(self, models: Sequence[Variables]) -> None:
        self._models = models
        self._before: list[dict[str, Array]] = []

    def __enter__(self) -> None:
        for model in self._models:
            arrays = {}
            for name, variable in model.items():
                arrays[name] = variable.array
            self._before.append(arrays)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            return
        for model, before in zip(self._models, self._before, strict=True):
            for name, variable in list(model.items()):
                if name in before:
                    variable.array = before[name]
                else:
                    del model[name]
