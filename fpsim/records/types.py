"""Types of arrays and arguments, by what they hold; every room writes them alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Axis", "Carrier", "ElementFlags", "Index", "Offsets", "OperandsAt", "Shape", "Words"]

#: Values of a format as native floats: binary32, or binary64 for formats that need it.
Carrier = NDArray[np.floating[Any]]

#: The flags of each element, as bytes.
ElementFlags = NDArray[np.uint8]

#: Random words, or the integers R of stochastic roundings.
Words = NDArray[np.uint32]

#: Distances between elements in memory, counted in elements.
Offsets = NDArray[np.int64]

Shape = tuple[int, ...]
Index = tuple[int, ...]
Axis = int | tuple[int, ...] | None

#: Operands of the result element at an index, as a trap shows them.
OperandsAt = Callable[[Index], Sequence[Any]]
