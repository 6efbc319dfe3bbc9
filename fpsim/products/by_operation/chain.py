"""What a product rounded after every operation is: its settings, and how a term is added."""

from __future__ import annotations

from typing import NamedTuple

from fpsim.records.settings import Settings

__all__ = ["Chain"]


class Chain(NamedTuple):
    """Settings of one product.

    name     separate, fused or kahan (see `fpsim.kernels.by_operation.general.CHAINS`).
    raised   flags that are up already: engines need not look for them.
    """

    settings: Settings
    name: str
    raised: int = 0
