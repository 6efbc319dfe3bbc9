"""Plausible wrong arguments, one at a time, and how a function may refuse them.

An error must be raised on purpose: by a `raise` of ours, as a TypeError, ValueError or such, with a
sentence. What comes out of the inside (AttributeError, KeyError, numpy's own words) is a defect.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import fpsim
import ipu
from fpsim import FloatingPointTrap

__all__ = ["WRONG", "arguments_of", "defects"]

_OURS = tuple(str(Path(p.__file__).parent) for p in (fpsim, ipu) if p.__file__)
_REFUSALS = (TypeError, ValueError, RuntimeError, OSError, FloatingPointTrap)

WRONG: dict[str, Any] = {
    "None": None, "2.5": 2.5, "nan": float("nan"), "inf": float("inf"), "text": "x", "no text": "",
    "list": [1], "empty": [], "-1": -1, "0": 0, "huge": 10**15, "object": object(), "True": True,
    "dict": {}, "complex": 1j, "array": np.ones((2, 3)), "bytes": b"x",
}


def arguments_of(function: Callable[..., Any], **values: Any) -> dict[str, Any]:
    """Valid arguments by name: these, and the defaults."""
    parameters = inspect.signature(function).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    return defaults | values


def _on_purpose(error: BaseException) -> bool:
    last = traceback.extract_tb(error.__traceback__)[-1]
    raised = (last.line or "").lstrip().startswith("raise")
    return isinstance(error, _REFUSALS) and raised and last.filename.startswith(_OURS)


def _is_truth(valid: Any, wrong: Any) -> bool:
    """numpy's own sentence says that an array is no truth value."""
    return isinstance(valid, bool) and isinstance(wrong, np.ndarray)


def defects(
    function: Callable[..., Any], valid: Mapping[str, Any], wrong: Mapping[str, Any] = WRONG
) -> Iterator[str]:
    """What happened where one argument of a valid call was wrong and was not refused on purpose."""
    names = list(inspect.signature(function).parameters.values())
    for name, right in valid.items():
        for kind, value in wrong.items():
            if _is_truth(right, value):
                continue
            call = {**valid, name: value}
            first = [call.pop(p.name) for p in names if p.kind is p.POSITIONAL_ONLY]
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function(*first, **call)
            except BaseException as error:
                if not _on_purpose(error):
                    yield f"{name}={kind}: {type(error).__name__}: {error}"
