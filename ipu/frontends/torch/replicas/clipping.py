"""torch's clipping and gradient scalers, which look at gradients before an optimiser does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["before_use_of_gradients"]


@contextmanager
def before_use_of_gradients(average: Callable[[Iterable[torch.Tensor]], None]) -> Iterator[None]:
    """Clipping and gradient scalers inside see averages."""
    clippers = ("clip_grad_norm_", "clip_grad_value_")
    before: dict[str, Any] = {name: getattr(torch.nn.utils, name) for name in clippers}
    scaler = torch.amp.GradScaler
    unscale = scaler.unscale_

    def clipper(name: str) -> Callable[..., Any]:
        def clip(parameters: Any, *rest: Any, **options: Any) -> Any:
            one = isinstance(parameters, torch.Tensor)
            rows = [parameters] if one else list(parameters)
            average(rows)
            return before[name](rows, *rest, **options)

        return clip

    def unscale_averages(self: Any, optimiser: torch.optim.Optimizer) -> None:
        average(p for group in optimiser.param_groups for p in group["params"])
        unscale(self, optimiser)

    for name in clippers:
        setattr(torch.nn.utils, name, clipper(name))
    scaler.unscale_ = unscale_averages
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(torch.nn.utils, name, function)
        scaler.unscale_ = unscale
