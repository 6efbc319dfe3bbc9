"""What tests ask of the processor that kernels are compiled for."""

from __future__ import annotations

import pytest

from fpsim.kernels import target

__all__ = ["needs_halves"]

needs_halves = pytest.mark.skipif(
    not (target.IS_ARM or target._target_has("f16c")),
    reason="the processor converts no numbers of 16 bits, and the compiler would call a library",
)
