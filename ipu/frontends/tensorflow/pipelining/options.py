"""Schedules, modes of recomputation, options of stages, and what an optimizer function returns.

Source    graphcore/tensorflow, tensorflow/python/ipu/ops/pipelining_ops.py: names and messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.settings.notes import note

__all__ = [
    "OptimizerFunctionOutput", "PipelineSchedule", "PipelineStageOptions", "RecomputationMode",
    "check_stage_options",
]


class PipelineSchedule(IntEnum):
    """In which order stages work on mini-batches; no bit changes."""

    Grouped = 0
    Interleaved = 1
    Sequential = 2


class RecomputationMode(Enum):
    """When activations are recomputed; no bit changes."""

    Auto = "auto"
    RecomputeThenBackpropagate = "then"
    RecomputeAndBackpropagateInterleaved = "interleaved"


@dataclass(frozen=True)
class PipelineStageOptions:
    """Options of the libraries for one stage; partialsType, "float" or "half", is modelled."""

    convolution_options: Mapping[str, str] = field(default_factory=dict)
    matmul_options: Mapping[str, str] = field(default_factory=dict)
    slice_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("convolution_options", "matmul_options", "slice_options"):
            options = getattr(self, name) or {}
            if not isinstance(options, Mapping):
                raise TypeError(f"{name} must be a dictionary, got {options!r}")
            object.__setattr__(self, name, dict(options))
            others = sorted(set(options) - {"partialsType"})
            if others:
                note(f"{name}: {', '.join(others)} is accepted, but not modelled")
        if self.convolution_options.get("partialsType") != self.matmul_options.get("partialsType"):
            both = (self.convolution_options, self.matmul_options)
            if all("partialsType" in options for options in both):
                raise ValueError(
                    "convolution_options and matmul_options name different partialsType; the "
                    "simulation keeps one for a stage"
                )

    @property
    def partials(self) -> str | None:
        """partialsType of the stage's products, where it is set.

        Raises    ValueError for another word.
        """
        word = self.matmul_options.get("partialsType", self.convolution_options.get("partialsType"))
        if word not in (None, "float", "half"):
            raise ValueError(f"partialsType={word!r} is not known; use 'float' or 'half'")
        return word


def check_stage_options(options: Any, n_stages: int, name: str) -> Sequence[PipelineStageOptions]:
    """Options of every stage.

    Raises    TypeError for another kind, ValueError for another number of them.
    """
    if options is None:
        return [PipelineStageOptions()] * n_stages
    if not isinstance(options, list | tuple):
        raise TypeError(f"{name} must be a list or a tuple of PipelineStageOptions objects.")
    if len(options) != n_stages:
        raise ValueError(
            f"{name} must be a list or a tuple of PipelineStageOptions objects of length "
            f"{n_stages} (same number as the number of computational stages) but is "
            f"{len(options)}."
        )
    for option in options:
        if not isinstance(option, PipelineStageOptions):
            raise TypeError(
                f"Expected all elements of {name} to be of type PipelineStageOptions, but got "
                f"{option} instead."
            )
    return list(options)


@dataclass(frozen=True)
class OptimizerFunctionOutput:
    """What an optimizer function returns: the optimiser and the loss, and how gradients are taken.

    compute_gradients_args, compute_gradients_kwargs, apply_gradients_args, apply_gradients_kwargs
                  of the optimiser's methods.
    variables, tape    of optimisers of Keras: what to differentiate by, or the tape that does.
    """

    opt: Any
    loss: Any
    compute_gradients_args: tuple[Any, ...] | None = None
    compute_gradients_kwargs: dict[str, Any] | None = None
    apply_gradients_args: tuple[Any, ...] | None = None
    apply_gradients_kwargs: dict[str, Any] | None = None
    variables: Sequence[Any] | None = None
    tape: Any = None
    gradient_capture_context: Any = None
    captured_gradient_outfeed: Any = None

    def __post_init__(self) -> None:
        is_first = isinstance(self.opt, tf.compat.v1.train.Optimizer)
        if not (is_first or callable(getattr(self.opt, "apply_gradients", None))):
            raise TypeError(
                "OptimizerFunctionOutput.opt must be a TensorFlow Optimizer object, got "
                f"{self.opt!r}"
            )
        if not isinstance(self.loss, tf.Tensor):
            raise TypeError("OptimizerFunctionOutput.loss must be a TensorFlow Tensor object.")
        has_compute = bool(self.compute_gradients_args or self.compute_gradients_kwargs)
        if has_compute and not is_first:
            raise ValueError(
                "OptimizerFunctionOutput.compute_gradients_args and compute_gradients_kwargs are "
                "for optimisers with compute_gradients"
            )
        if is_first and (self.variables or self.tape):
            raise ValueError(
                "OptimizerFunctionOutput.variables and tape are for optimisers of Keras"
            )
        if self.variables and self.tape:
            raise ValueError(
                "OptimizerFunctionOutput.variables must be empty when "
                "OptimizerFunctionOutput.tape is used."
            )
        if self.gradient_capture_context or self.captured_gradient_outfeed:
            raise NotImplementedError("gradients are not captured in pipelines here; leave it out")

    def gradients(self) -> list[tuple[Any, Any]]:
        """Pairs of gradient and variable."""
        if isinstance(self.opt, tf.compat.v1.train.Optimizer):
            pairs = self.opt.compute_gradients(
                self.loss, *(self.compute_gradients_args or ()),
                **(self.compute_gradients_kwargs or {}),
            )
        else:
            variables = list(self.variables or tf.compat.v1.trainable_variables())
            gradients = (
                self.tape.gradient(self.loss, variables)
                if self.tape is not None else tf.gradients(self.loss, variables)
            )
            pairs = list(zip(gradients, variables, strict=True))
        return [(gradient, variable) for gradient, variable in pairs if gradient is not None]

    def apply(self, pairs: list[tuple[Any, Any]]) -> Any:
        """The optimiser's update."""
        return self.opt.apply_gradients(
            pairs, *(self.apply_gradients_args or ()), **(self.apply_gradients_kwargs or {})
        )
