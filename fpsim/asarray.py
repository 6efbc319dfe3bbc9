"""What happens where an Array is asked for an ndarray: refused, told once, or allowed.

numpy and scipy compute with an ndarray in its own type. `scipy.linalg.lu` of a binary16 Array is a
decomposition in binary32, and nothing in its result says so.
"""

from __future__ import annotations

import sys
import warnings

from fpsim.records.rounding import RNE
from fpsim.records.settings import Settings

__all__ = ["CHOICES", "AsArray"]

CHOICES = ("refuse", "warn", "allow")

#: Packages whose frames are not the user's.
_PACKAGES = ("fpsim", "numpy", "scipy", "array_api_compat")


class AsArray:
    """The choice of a context and of those that share its flags, and whether it was told.

    choice   "refuse", "warn" (once) or "allow".

    >>> AsArray("warm")
    Traceback (most recent call last):
    ...
    ValueError: asarray='warm' is not known; use one of refuse, warn, allow
    """

    __slots__ = ("choice", "told")

    def __init__(self, choice: str) -> None:
        if not isinstance(choice, str) or choice not in CHOICES:
            raise ValueError(f"asarray={choice!r} is not known; use one of {', '.join(CHOICES)}")
        self.choice, self.told = choice, False

    def leave(self, settings: Settings) -> None:
        """An Array of these settings is about to become an ndarray.

        Raises    TypeError where that is refused; UserWarning the first time that arithmetic on
                  the ndarray is another than the context's.
        """
        fmt = settings.format
        if self.choice == "refuse":
            raise TypeError(
                f"asarray='refuse': an Array of {fmt.name} was asked for an ndarray, with which "
                "numpy and scipy compute in the ndarray's type; say x.values where that is meant"
            )
        if self.choice == "allow" or self.told or _computes_alike(settings):
            return
        self.told = True
        warnings.warn(
            f"an Array of {fmt.name} became an ndarray of {fmt.carrier}: what numpy or scipy "
            f"compute with it is rounded to {fmt.carrier}, not as the context rounds. Say "
            "x.values, or Context(asarray='allow'), where that is meant; asarray='refuse' stops it",
            UserWarning,
            stacklevel=_level_of_the_user(),
        )


def _computes_alike(settings: Settings) -> bool:
    """Whether numpy rounds the ndarray as the context does."""
    fmt = settings.format
    return fmt.bits == 8 * fmt.carrier.itemsize and settings.rounding == RNE


def _level_of_the_user() -> int:
    """Frames between `warnings.warn` and the first that is of none of the packages."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _PACKAGES:
            break
        level, frame = level + 1, frame.f_back
    return level
