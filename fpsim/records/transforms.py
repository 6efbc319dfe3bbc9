"""Hadamard transforms as records: size, signs, and the formats in which they are rounded.

A transform of n numbers is v -> v diag(signs) H / sqrt(n), H Sylvester's matrix. Of two operands of
a product that are transformed alike along the axis over which it sums, the product stays.

Evidence  signs and the rounding to bfloat16 before amax are DOCUMENTED (TransformerEngine d0067d0);
          that sums go by stages in binary32 is ASSUMED, there a matrix unit computes them.
Source    arXiv 2509.25149; arXiv 2502.20586 (64 numbers, fresh signs).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from fpsim.kernels.random.philox import philox_block
from fpsim.records.formats import BFLOAT16, BINARY32, Format, find_number_format

__all__ = ["TRANSFORMS", "Transform", "find_transform"]

_SIZES = (2, 4, 8, 16, 32, 64, 128)
_LAST = 0xFFFFFFFF


@dataclass(frozen=True)
class Transform:
    """One Hadamard transform along groups of an axis.

    size     numbers of a group.
    signs    +1 or -1 of each number before; None: all +1.
    sums     format of the additions, stage by stage, and of the last factor 1 / sqrt(size).
    result   format that the transformed numbers are rounded to; None: as the sums.

    >>> find_transform("rht16").signs[:5]
    (1, 1, 1, -1, 1)
    """

    name: str
    size: int
    signs: tuple[int, ...] | None = None
    sums: Format = BINARY32
    result: Format | None = BFLOAT16

    def __post_init__(self) -> None:
        if isinstance(self.size, bool) or self.size not in _SIZES:
            raise ValueError(
                f"size={self.size!r} is not offered; use one of {', '.join(map(str, _SIZES))}"
            )
        for label in ("sums", "result"):
            fmt = getattr(self, label)
            if fmt is not None:
                object.__setattr__(self, label, find_number_format(fmt, label))
        signs = self.signs
        if signs is None:
            return
        if len(signs) != self.size or set(signs) - {1, -1}:
            raise ValueError(
                f"signs={signs!r} are not {self.size} of 1 and -1; give one for each number"
            )
        object.__setattr__(self, "signs", tuple(signs))

    @classmethod
    def drawn(cls, size: int, seed: int = 0, number: int = 0) -> Transform:
        """With signs of operation `number` of a seed: bit 31 of the word of counter (j, 2**32 - 1).

        >>> Transform.drawn(4, seed=1) == Transform.drawn(4, seed=1), len(Transform.drawn(64).signs)
        (True, 64)
        """
        words = [
            philox_block(j, _LAST, number & _LAST, number >> 32, seed & _LAST, seed >> 32)[0]
            for j in range(size)
        ]
        return cls(f"rht{size}@{seed}.{number}", size, tuple(-1 if w >> 31 else 1 for w in words))

    def __str__(self) -> str:
        return self.name


#: TransformerEngine's fixed signs.
_SIGNS = (1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1)

#: The named transforms.
TRANSFORMS = {
    t.name: t
    for t in (
        Transform("rht16", 16, _SIGNS), Transform("h16", 16), Transform("h32", 32),
        Transform("h64", 64),
    )
}


def find_transform(name: str | Transform) -> Transform:
    """The transform of that name.

    >>> find_transform("rht8")
    Traceback (most recent call last):
    ...
    ValueError: transform='rht8' is not known; use one of rht16, h16, h32, h64, or Transform.drawn
    """
    if isinstance(name, Transform):
        return name
    if not isinstance(name, str):
        raise TypeError(f"transform={name!r} is no Transform; use one of {', '.join(TRANSFORMS)}")
    if name.lower() in TRANSFORMS:
        return TRANSFORMS[name.lower()]
    close = difflib.get_close_matches(name.lower(), TRANSFORMS, 1, 0.8)
    hint = f". Did you mean {close[0]!r}?" if close and close[0] != "rht16" else ""
    raise ValueError(
        f"transform={name!r} is not known; use one of {', '.join(TRANSFORMS)}, or "
        f"Transform.drawn{hint}"
    )
