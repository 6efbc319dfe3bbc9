"""A micro-batch: its forward pass and its backward pass, each in one piece, with marks of stages.

The user's forward pass is one Python function, and blocks in it tell where a stage begins; the
backward pass comes to the stages in reverse, and the latest node of each tells when.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch

from ipu.frontends.poptorch.blocks import listening
from ipu.frontends.poptorch.engine.calls import Calls, functions_told
from ipu.frontends.poptorch.engine.tape import Tape, next_node, stage_heads
from ipu.frontends.poptorch.losses import Losses

__all__ = ["MicroBatch", "Slope", "StagesOfBlocks"]

#: A parameter and its gradient of one micro-batch.
Slope = tuple[torch.Tensor, torch.Tensor]


class StagesOfBlocks(Protocol):
    """Which stage a block belongs to."""

    @property
    def n_stages(self) -> int: ...
    def stage_of(self, user_id: str, ipu_id: int | None) -> int: ...


@contextmanager
def _recording(records: bool) -> Iterator[None]:
    """Whether autograd records inside: beneath the blocks of torch, which belong to the program."""
    before = torch.is_grad_enabled()
    with torch._C._InferenceMode(False):
        torch._C._set_grad_enabled(records)
        try:
            yield
        finally:
            torch._C._set_grad_enabled(before)


def _nothing(arguments: Any) -> None:
    """Calls are not measured."""


class MicroBatch:
    """One micro-batch of one replica.

    stages    where blocks belong.
    begin     called with each stage that begins, forward and backward.
    records   whether autograd records; halves: mixed operands compute in float16.
    tape      what is told of every call; None: nothing.
    """

    def __init__(
        self, stages: StagesOfBlocks, begin: Callable[[bool, int], None], *, records: bool,
        halves: bool = True, tape: Tape | None = None,
    ) -> None:
        self._stages, self._begin, self._records, self._tape = stages, begin, records, tape
        self.losses = Losses()
        note = _nothing if tape is None else tape.note
        self._calls = Calls(note, self.losses.note, halves=halves)
        self._stage, self._blocks = 0, 0
        #: Number of the first node of each stage.
        self._starts = [0]

    # Forward --------------------------------------------------------------------------------

    def forward(self, run: Callable[[], Any]) -> Any:
        """The outputs of the model."""
        self._begin(False, 0)
        with ExitStack() as stack:
            stack.enter_context(_recording(self._records))
            stack.enter_context(self._calls)
            stack.enter_context(listening(self))
            if self._tape is not None:
                stack.enter_context(functions_told(self._tape.note))
            return run()

    def enter_block(self, user_id: str | None, ipu_id: int | None) -> None:
        """A block begins: if it is of a later stage, the present one has ended."""
        if user_id is None:
            user_id, self._blocks = str(self._blocks), self._blocks + 1
        stage = self._stages.stage_of(user_id, ipu_id)
        if stage < self._stage:
            raise ValueError(
                f"block {user_id!r} of stage {stage} runs after a block of stage "
                f"{self._stage}; a stage cannot run again, put the block into stage "
                f"{self._stage} or later"
            )
        for number in range(self._stage + 1, stage + 1):
            self._stage = number
            self._starts.append(next_node())
            if self._tape is not None:
                self._tape.begin(self._starts[-1])
            self._begin(False, number)

    def mark_loss(self, tensor: torch.Tensor) -> None:
        """`identity_loss` was called."""
        self.losses.mark(tensor)

    def reset_block_numbers(self) -> None:
        """Blocks without a name count from 0 again."""
        self._blocks = 0

    # Backward -------------------------------------------------------------------------------

    def backward(
        self, seed: Callable[[torch.Tensor], torch.Tensor], parameters: Sequence[torch.Tensor],
        watch: Callable[[], AbstractContextManager[Any]] | None = None,
    ) -> list[Slope]:
        """The gradients of the parameters that the loss depends on.

        seed     makes the gradient of the loss.
        watch    entered around the pass.
        """
        last, loss = self._stages.n_stages - 1, self.losses.final
        self._begin(True, last)
        first = seed(loss)
        if last:
            for stage, node in stage_heads(loss, self._starts).items():
                if stage < last:
                    node.register_prehook(partial(self._reached, stage))
        self._calls.is_backward = True
        with _recording(True), self._calls, nullcontext() if watch is None else watch():
            gradients = torch.autograd.grad([loss], parameters, [first], allow_unused=True)
        pairs = zip(parameters, gradients, strict=True)
        return [(p, gradient) for p, gradient in pairs if gradient is not None]

    def _reached(self, stage: int, gradients: Any) -> None:
        """The backward pass comes to a stage."""
        self._begin(True, stage)
