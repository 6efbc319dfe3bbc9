"""What an IPU can hold, and the error of a program that needs more."""

from __future__ import annotations

from ipu.machine.target import Target

__all__ = ["OutOfMemoryError", "room_of"]


class OutOfMemoryError(ValueError):
    """A program needs more memory than an IPU has."""


def room_of(target: Target, io_tiles: int = 0) -> int:
    """Bytes of the tiles that compute.

    >>> from ipu.machine.target import MK2
    >>> room_of(MK2)
    940572672
    """
    tiles: int = target.tiles.value - io_tiles
    size: int = target.tile_memory.value
    return tiles * size
