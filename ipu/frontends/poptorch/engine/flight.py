"""A flight: one micro-batch of one replica, from its forward pass to the end of its backward one.

The model's `forward` runs in a strand that pauses where a stage ends; the schedule decides what
runs in between. Backward passes of the stages run in the same strand, latest stage first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Protocol

import torch

from ipu.frontends.poptorch.blocks import listening
from ipu.frontends.poptorch.engine.cuts import CutMode, Cuts
from ipu.frontends.poptorch.engine.strand import Strand
from ipu.frontends.poptorch.losses import Losses

__all__ = ["Flight", "Slope", "Stages"]


class Stages(Protocol):
    """Which stage a block belongs to."""

    def stage_of(self, user_id: str, ipu_id: int | None) -> int: ...


#: A parameter and its gradient of one micro-batch.
Slope = tuple[torch.Tensor, torch.Tensor]


class Flight:
    """One micro-batch.

    run         the model's forward pass.
    stages      where blocks belong.
    parameters  whose gradients are wanted; none in an inference.
    mode        enters the machine, in the strand; watch: entered around backward passes.
    arguments   of the forward pass, for the account.
    halves      operations on float16 and float32 tensors compute in float16.
    records     whether autograd records; without a choice, if gradients are wanted.
    """

    def __init__(
        self, run: Callable[[], Any], stages: Stages, parameters: Sequence[torch.Tensor],
        mode: Any, watch: Callable[[], AbstractContextManager[Any]] | None = None,
        arguments: Any = None, *, records: bool | None = None, halves: bool = True,
    ) -> None:
        self._run, self._stages, self._mode, self._watch = run, stages, mode, watch
        self.arguments = arguments
        self._records = bool(parameters) if records is None else records
        self._parameters = list(parameters)
        self.cuts, self.losses = Cuts(), Losses()
        self._function_mode = CutMode(self.cuts, self.losses.note, halves=halves)
        self.outputs: Any = None
        #: Whether the forward pass has come to its end.
        self.is_done = False
        self._work: Callable[[], Any] | None = None
        self._result: Any = None
        self._blocks = 0
        #: Gradients of tensors that cross stages, and of parameters, so far.
        self._slopes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._strand = Strand(self._fly)

    # In the strand --------------------------------------------------------------------------

    def _fly(self, strand: Strand) -> None:
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self._records))
            stack.enter_context(self._mode)
            stack.enter_context(self._function_mode)
            stack.enter_context(listening(self))
            self.outputs = self._run()
            self.is_done = True
            while True:
                strand.pause()
                work, self._work = self._work, None
                if work is None:
                    return
                self._result = work()

    def enter_block(self, user_id: str | None, ipu_id: int | None) -> None:
        """A block begins: if it is of a later stage, the present one has ended."""
        if user_id is None:
            user_id, self._blocks = str(self._blocks), self._blocks + 1
        stage = self._stages.stage_of(user_id, ipu_id)
        if stage < self.cuts.stage:
            raise ValueError(
                f"block {user_id!r} of stage {stage} runs after a block of stage "
                f"{self.cuts.stage}; a stage cannot run again, put the block into stage "
                f"{self.cuts.stage} or later"
            )
        while self.cuts.stage < stage:
            self._strand.pause()
            self.cuts.begin(self.cuts.stage + 1)

    def mark_loss(self, tensor: torch.Tensor) -> None:
        """`identity_loss` was called."""
        self.losses.mark(tensor)

    def reset_block_numbers(self) -> None:
        """Blocks without a name count from 0 again."""
        self._blocks = 0

    # From outside ---------------------------------------------------------------------------

    def forward(self, stage: int) -> None:
        """Run the forward pass of a stage."""
        if not self.is_done and self.cuts.stage <= stage:
            self._strand.resume()

    def _call(self, work: Callable[[], Any]) -> Any:
        """Run this in the strand."""
        self._work = work
        self._strand.resume()
        result, self._result = self._result, None
        return result

    def backward(self, stage: int, seed: torch.Tensor | None) -> list[Slope]:
        """Run the backward pass of a stage; the gradients that no earlier stage adds to.

        seed    the gradient of the loss, with the last stage.
        """
        # The mode stays open: a look at a tensor here is no call of the program.
        self._function_mode.is_open = True
        try:
            slopes: list[Slope] = self._call(lambda: self._backward(stage, seed))
        finally:
            self._function_mode.is_open = False
        return slopes

    def close(self) -> None:
        """End the strand."""
        self._strand.close()

    # Backward -------------------------------------------------------------------------------

    def _backward(self, stage: int, seed: torch.Tensor | None) -> list[Slope]:
        inlets = list(self.cuts.inlets[stage].values())
        parameters = self._wanted(stage)
        if seed is not None:
            self._slopes[id(self.losses.final)] = self.losses.final, seed
        roots, seeds = self._roots(stage)
        if not roots:
            return []
        sources = [inlet.leaf for inlet in inlets] + parameters
        with nullcontext() if self._watch is None else self._watch():
            summed = torch.autograd.grad(roots, sources, seeds, allow_unused=True)
        keys = [inlet.origin for inlet in inlets] + parameters
        for key, gradient in zip(keys, summed, strict=True):
            if gradient is not None:
                self._slopes[id(key)] = key, gradient
        self.cuts.inlets[stage].clear()
        complete = [p for p in parameters if id(p) in self._slopes and self._first_use(p) == stage]
        return [self._slopes.pop(id(p)) for p in complete]

    def _roots(self, stage: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Where the stage's backward pass starts: the loss, what later stages took, sums so far."""
        roots, seeds = [], []
        own = self.cuts.inlets[stage]
        for key, (tensor, gradient) in list(self._slopes.items()):
            if isinstance(tensor, torch.nn.Parameter):
                if key not in self.cuts.used[stage]:
                    continue
                root = tensor
            elif key in own:
                root = own[key].through
            elif self._is_of(tensor, stage):
                root = tensor
            else:
                continue
            roots.append(root)
            seeds.append(gradient)
            del self._slopes[key]
        return roots, seeds

    def _is_of(self, tensor: torch.Tensor, stage: int) -> bool:
        assert tensor.grad_fn is not None
        return bool(tensor.grad_fn._sequence_nr() >= self.cuts.start(stage))

    def _wanted(self, stage: int) -> list[torch.Tensor]:
        """Parameters of the stage; those that no call took are looked for in the first one."""
        wanted = {id(p) for p in self._parameters}
        own = [p for key, p in self.cuts.used[stage].items() if key in wanted]
        if stage == 0:
            seen = {key for used in self.cuts.used for key in used}
            own += [p for p in self._parameters if id(p) not in seen]
        return own

    def _first_use(self, parameter: torch.Tensor) -> int:
        """The earliest stage that takes a parameter."""
        uses = (stage for stage, used in enumerate(self.cuts.used) if id(parameter) in used)
        return next(uses, 0)
