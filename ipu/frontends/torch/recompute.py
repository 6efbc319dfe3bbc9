"""Recomputation: `torch.utils.checkpoint`, called as users call it, repeats its random bits.

The functions that checkpoint a region keep where the region started; the recomputation in the
backward pass starts there again, in the same layers, and counts under the direction `recompute`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.utils import checkpoint

__all__ = ["repeating"]

_GENERATOR = "_checkpoint_without_reentrant_generator"
_FUNCTION = "CheckpointFunction"

Mark = Callable[[], Any]
Again = Callable[[Any], AbstractContextManager[None]]
Region = Callable[[], AbstractContextManager[None]]


@contextmanager
def repeating(mark: Mark, again: Again, region: Region) -> Iterator[None]:
    """Checkpointed regions inside repeat, in their recomputation, what they drew.

    mark     where the program is now.
    again    the operations inside are those after that mark.
    region   around a region's first run, where torch records nothing.
    """
    before = {name: getattr(checkpoint, name) for name in (_GENERATOR, _FUNCTION)}

    def generator(function: Any, *arguments: Any, **options: Any) -> Any:
        # The region itself runs outside of the generator, after this.
        repeated = _Repeated(function, again, mark())
        return before[_GENERATOR](repeated, *arguments, **options)

    class Reentrant:
        """Stands for torch's autograd function of the same name."""

        @staticmethod
        def apply(function: Any, *arguments: Any) -> Any:
            repeated = _Repeated(function, again, mark(), region)
            return before[_FUNCTION].apply(repeated, *arguments)

    setattr(checkpoint, _GENERATOR, generator)
    setattr(checkpoint, _FUNCTION, Reentrant)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(checkpoint, name, function)


class _Repeated:
    """A checkpointed function; the run after its first, if there is one, is a recomputation."""

    def __init__(
        self, function: Any, again: Again, start: Any, region: Region | None = None
    ) -> None:
        self._function, self._again, self._start, self._region = function, again, start, region

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        region, self._region = self._region, None
        with self._again(self._start) if region is None else region():
            return self._function(*arguments, **options)
