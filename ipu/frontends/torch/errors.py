"""What users read when an operation cannot run: torch's sentence where it refuses too, else ours.

Rules of the machine check shapes and data types in their own words. A program that handles errors
expects those of torch, so an operation that fails is tried once more by torch on copies; if torch
refuses it, its error is raised.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.values import tensors_of
from ipu.run import lines
from ipu.run.lines import folder_of

__all__ = ["error_of_torch", "explained", "is_foreign", "refusal", "user_line"]


_TORCH = folder_of(Path(torch.__file__).parent)


def user_line() -> str:
    """The line as FILE:NUMBER, "" where no frame is the user's."""
    return lines.user_line(_TORCH)


def refusal(func: Any, call: Call) -> NotImplementedError:
    """The error of an operation that has no rule."""
    return NotImplementedError(
        f"{func} in layer {call.layer!r} ({call.direction}), at {user_line()}, has no rule on the "
        "simulated machine, and nothing runs natively; compute it outside of the session, or write "
        "it with operations that docs/pytorch.md lists"
    )


def is_foreign(x: torch.Tensor) -> bool:
    """Whether a tensor is none of numbers side by side in the host's memory.

    >>> is_foreign(torch.eye(2).to_sparse()), is_foreign(torch.eye(2))
    (True, False)
    """
    is_dense = x.layout is torch.strided and x.device.type == "cpu"
    is_plain = type(x).__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
    return not is_dense or not is_plain or x.is_quantized or x.is_nested


def explained(
    error: Exception, func: Any, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Exception:
    """The error to raise in place of this one, or itself."""
    if isinstance(error, (FloatingPointError, NotImplementedError)):
        return error
    if any(map(is_foreign, tensors_of(args, kwargs))):
        return refusal(func, call)
    return error_of_torch(func, args, kwargs) or error


def error_of_torch(func: Any, args: Any, kwargs: Any) -> Exception | None:
    """What torch itself says about these arguments; None if it takes them."""

    def copied(x: Any) -> Any:
        return x.clone() if isinstance(x, torch.Tensor) else x

    with torch.random.fork_rng(devices=[]):
        try:
            args, kwargs = tree_map(copied, (args, kwargs))
            func(*args, **kwargs)
        except Exception as error:
            return error
    return None
