"""What users read when an operation cannot run: torch's sentence where it refuses too, else ours.

Rules of the machine check shapes and data types in their own words. A program that handles errors
expects those of torch, so an operation that fails is tried once more by torch on copies; if torch
refuses it, its error is raised.

The line that errors name is the innermost frame outside of this package, of torch and of installed
libraries; where there is none, the innermost one outside of this package and of torch.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch.utils._pytree import tree_map

from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.values import tensors_of

__all__ = ["error_of_torch", "explained", "is_foreign", "refusal", "user_line"]


def _folder(path: str | Path) -> str:
    return os.path.join(os.path.realpath(path), "")


_OURS = tuple(_folder(Path(__file__).parents[3] / package) for package in ("fpsim", "ipu"))
_TORCH = (_folder(Path(torch.__file__).parent),)
_INSTALLED = tuple(
    _folder(sysconfig.get_paths()[kind])
    for kind in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
)


def user_line() -> str:
    """The line as FILE:NUMBER, "" where no frame is the user's."""
    fallback = ""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        line, frame = frame.f_lineno, frame.f_back
        owner = _owner(file)
        if owner == "user":
            return f"{file}:{line}"
        if owner == "installed":
            fallback = fallback or f"{file}:{line}"
    return fallback


@cache
def _owner(file: str) -> str:
    """Whose a file of Python is: "user", "installed" or, of us, torch and no file, ""."""
    path = os.path.realpath(file)
    if file.startswith("<") or path.startswith(_OURS) or path.startswith(_TORCH):
        return ""
    return "installed" if path.startswith(_INSTALLED) else "user"


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
