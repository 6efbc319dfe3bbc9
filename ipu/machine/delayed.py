"""Delayed scales of a device: each tensor's follows from its largest magnitudes before.

A tensor is an operand of a layer (x, w, dy). What a micro-batch quantises has the scale that
followed from the micro-batches before it; its own largest magnitudes join the history when the
next one begins. So both uses of a tensor, forward and in the weight gradient, have one scale,
whatever runs between them. Evaluations use scales and record nothing.

Source    TransformerEngine d0067d0 (`fpsim.delayed_scales`); that a layer which is called several
          times records the largest of all calls, and that the history moves on at micro-batches,
          is ASSUMED of its fp8_autocast contexts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fpsim.delayed_scales import DelayedScale
from fpsim.records.formats import Format

__all__ = ["DelayedScales", "Moment"]

#: Moments whose scales are remembered for backward passes that come later, as in pipelines.
_REMEMBERED = 64


class Moment(NamedTuple):
    """The part of a training that quantises.

    is_training    its largest magnitudes are recorded.
    """

    step: int = 0
    micro_batch: int = 0
    is_training: bool = True


class _Tensor:
    """The state of one tensor: the scale of now, and what the present moment has recorded."""

    def __init__(self, scale: DelayedScale) -> None:
        self.scale = scale
        #: The moment that records now, and its largest magnitude.
        self.pending: tuple[tuple[int, int], float] | None = None
        self.used: dict[tuple[int, int], float] = {}

    def at(self, moment: Moment) -> float:
        """The factor of a moment."""
        key = moment.step, moment.micro_batch
        if any(step > moment.step for step, _ in self.used):  # steps count from 0 again
            self.used.clear()
        if moment.is_training and key in self.used:
            return self.used[key]
        self.end(key if moment.is_training else None)
        if moment.is_training:
            if len(self.used) >= _REMEMBERED:
                del self.used[next(iter(self.used))]
            self.used[key] = self.scale.scale
        return self.scale.scale

    def end(self, key: tuple[int, int] | None) -> None:
        """What another moment recorded joins the history."""
        if self.pending is not None and self.pending[0] != key:
            self.scale = self.scale.after(self.pending[1])
            self.pending = None

    def record(self, moment: Moment, amax: float) -> None:
        key = moment.step, moment.micro_batch
        if self.pending is None:
            self.pending = key, amax
        elif self.pending[0] == key:
            before = self.pending[1]
            self.pending = key, amax if not amax <= before else before


class DelayedScales:
    """The scales of all tensors of a training, by layer and operand.

    >>> from fpsim import E4M3FN
    >>> scales = DelayedScales()
    >>> [scales.factor("head", "x", E4M3FN, 2, Moment(step), 1000.0) for step in range(2)]
    [1.0, 0.4480000138282776]
    """

    def __init__(self) -> None:
        self._tensors: dict[tuple[str, str], _Tensor] = {}

    def factor(
        self, layer: str, operand: str, element: Format, history: int, moment: Moment, amax: float
    ) -> float:
        """What a tensor with this largest magnitude is multiplied by at a moment, which is noted.

        history    steps that the scale follows from.
        """
        key = layer, operand
        tensor = self._tensors.get(key)
        if tensor is None:
            tensor = self._tensors[key] = _Tensor(DelayedScale(element, history))
        factor = tensor.at(moment)
        if moment.is_training:
            tensor.record(moment, amax)
        return factor

    def begin_anew(self) -> None:
        """Steps count from 0 again: what the last moment recorded joins the histories now.

        >>> from fpsim import E4M3FN
        >>> scales = DelayedScales()
        >>> scales.factor("head", "x", E4M3FN, 2, Moment(), 1000.0)
        1.0
        >>> scales.begin_anew()
        >>> scales.factor("head", "x", E4M3FN, 2, Moment(), 1000.0)
        0.4480000138282776
        """
        for tensor in self._tensors.values():
            tensor.end(None)
            tensor.used.clear()

    def __iter__(self) -> Iterator[tuple[str, str, DelayedScale]]:
        """Layer, operand and state of each tensor."""
        for (layer, operand), tensor in self._tensors.items():
            yield layer, operand, tensor.scale

    def __bool__(self) -> bool:
        return bool(self._tensors)

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds: numbers and texts.

        >>> DelayedScales().state()
        {}
        """
        return {
            f"{layer}|{operand}": tensor.scale.state() | {
                "pending": None if tensor.pending is None else [*tensor.pending[0],
                                                                tensor.pending[1]],
                "used": [[*key, scale] for key, scale in tensor.used.items()],
            }
            for (layer, operand), tensor in self._tensors.items()
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; nothing changes where it is refused.

        Raises    ValueError for what is no state.
        """
        tensors = {}
        for name, entry in state.items():
            layer, bar, operand = name.rpartition("|")
            row = dict(entry) if isinstance(entry, Mapping) else {}
            missing = {"scale", "history", "pending", "used"} - row.keys()
            if not bar or missing:
                close = difflib.get_close_matches(name, state, 1)
                raise ValueError(
                    f"state[{name!r}] is no delayed scale of a layer's operand (LAYER|x with "
                    f"scale, history, pending, used); save it again{' ' if close else ''}"
                )
            pending, used = row.pop("pending"), row.pop("used")
            tensor = _Tensor(DelayedScale.from_state(row))
            if pending is not None:
                tensor.pending = (int(pending[0]), int(pending[1])), float(pending[2])
            tensor.used = {(int(s), int(m)): float(scale) for s, m, scale in used}
            tensors[layer, operand] = tensor
        self._tensors = tensors
