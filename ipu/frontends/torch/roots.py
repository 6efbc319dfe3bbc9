"""Where backward passes begin: losses, their scales, and the first gradients.

Loss, loss scale and first gradient are binary32. A program whose own loss is float16 or bfloat16
keeps it: there the first gradient (1, or the scale) is rounded by the machine, with its flags, as
an operation of the backward pass in the layer of the loss, which draws nothing.

Source    docs/semantics.md §6 (training).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import _disable_current_modes

from fpsim.records.formats import BINARY32
from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.errors import user_line
from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.values import FORMATS, Memory, stored
from ipu.run.places import PlaceClock
from ipu.run.recorder import Recorder

__all__ = ["Roots"]

_OPERATION = "aten.backward"
_number_of = torch.ops.aten._local_scalar_dense.default


class Roots:
    """The losses of a session.

    factor    every backward pass begins with it.
    call      the operation of that name, at the present place.
    step      of the optimiser, now.
    check     what must hold before a backward pass begins.
    """

    def __init__(
        self, factor: float, recorder: Recorder, memory: Memory, layers: Layers,
        call: Callable[[str], Call], step: Callable[[], int], check: Callable[[], None],
    ) -> None:
        self._factor, self._recorder, self._memory, self._layers = factor, recorder, memory, layers
        self._call, self._step, self._check = call, step, check
        #: Of the program's gradient scaler.
        self._scale = 1.0
        recorder.scale = factor
        #: Called with each loss that a backward pass begins at.
        self.on_loss: Callable[[torch.Tensor], None] | None = None

    def note_loss(self, root: torch.Tensor) -> None:
        """A backward pass begins at a tensor of one element; one of torch.func has no number."""
        self._check()
        if stored(root) is None:
            return
        if self.on_loss is not None:
            self.on_loss(root)
        value = float(_number_of(root.detach()))
        self._recorder.loss(self._step(), value / self._scale, self._memory.origins(root))
        fmt = FORMATS.get(root.dtype)
        if fmt is not None:
            layer = self._layers.layer_of_node(root.grad_fn) or "loss"
            self._recorder.bound(layer, fmt, value / self._scale)

    def note_scale(self, scale: float) -> None:
        """A gradient scaler multiplies a loss."""
        self._scale, self._recorder.scale = scale, scale * self._factor

    @contextmanager
    def scaling(self) -> Iterator[None]:
        """A loss times the scale of a gradient scaler is binary32."""
        self._memory.is_scaling = True
        try:
            yield
        finally:
            self._memory.is_scaling = False

    def root_gradient(
        self, root: torch.Tensor, incoming: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The factor, or a program's first gradient times the factor.

        Rounding  into the format of a float16 or bfloat16 root; else none.
        Flags     of that rounding.
        """
        if incoming is not None and self._factor == 1:
            return incoming
        return self.gradient(root, self._factor, incoming)

    def gradient(
        self, root: torch.Tensor, factor: float, incoming: torch.Tensor | None = None
    ) -> torch.Tensor:
        """As `root_gradient`, with another factor."""
        memory, narrow = self._memory, root.dtype in FORMATS
        with _disable_current_modes(), torch.no_grad():
            dtype = torch.float32 if narrow else root.dtype
            wide = torch.full(root.shape, factor, dtype=dtype)
            if incoming is not None:
                wide = incoming.to(dtype) * factor
            if not narrow:
                memory.mark(wide, BINARY32, is_gradient=True)
                return wide
            layer = self._layers.layer_of_node(root.grad_fn) or "loss"
            clock = memory.device.clock
            assert isinstance(clock, PlaceClock)
            with clock.replaying(clock.mark()), self._layers.beginning(layer):
                return self._rounded(wide, root.dtype)

    def _rounded(self, wide: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        call = self._call(_OPERATION)
        device = call.device
        try:
            array = device.context(BINARY32).wrap(wide.numpy())
            rounded = device.cast(array, FORMATS[dtype])
        except FloatingPointError as error:
            at = f", at {line}" if (line := user_line()) else ""
            error.add_note(f"in the first gradient, layer {call.layer!r} (backward){at}")
            raise
        return self._memory.write(rounded, dtype, is_gradient=True)
