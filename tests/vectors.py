"""Where external vectors and data sets lie; tests that need them skip with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_SHARED = Path(__file__).parents[2] / "shared"

_MODES = ("near_even", "minMag", "min", "max")
_EXACT = ("eq", "le", "lt")
_ROUNDED = ("add", "sub", "mul", "div", "sqrt", "mulAdd", "rem", "roundToInt", "to_i32")
_CONVERSIONS = (
    "i32_to_f16", "i32_to_f32", "f32_to_f16", "f32_to_bf16", "f64_to_f16", "f64_to_f32"
)
#: The functions of TestFloat that are recorded, and in which modes; a missing file is a skip.
TESTFLOAT = {
    **{f"{f}_{name}": ("near_even",) for f in ("f16", "f32") for name in _EXACT},
    **dict.fromkeys(("f16_to_f32", "bf16_to_f32"), ("near_even",)),
    **{f"{f}_{name}": _MODES for f in ("f16", "f32") for name in _ROUNDED},
    **dict.fromkeys(_CONVERSIONS, _MODES),
}


def recorded_lines(function: str, mode: str) -> Path:
    """The file of a function in a mode."""
    return vector_path(f"testfloat/{function}.{mode}.txt.gz")


def vector_path(relative: str) -> Path:
    """A file or folder below FPSIM_VECTORS; the calling test carries `@pytest.mark.vectors`."""
    return _external("FPSIM_VECTORS", relative)


def data_path(relative: str) -> Path:
    """A file or folder below FPSIM_DATA (data sets)."""
    return _external("FPSIM_DATA", relative)


def documents() -> Path:
    """The folder of the source documents: FPSIM_SOURCES, or seeds beside the checkout."""
    return _external("FPSIM_SOURCES", "", beside="seeds")


def data_of_documents() -> Path:
    """The folder with MNIST, which the documents' programs read: FPSIM_DATA, or one beside."""
    return _external("FPSIM_DATA", "mnist", beside="data").parent


def _external(variable: str, relative: str, beside: str = "") -> Path:
    folder = os.environ.get(variable)
    if not folder and beside and (shared := _SHARED / beside).exists():
        folder = str(shared)
    if not folder:
        pytest.skip(f"{variable} is not set")
    path = Path(folder) / relative
    if not path.exists():
        pytest.skip(f"{variable} holds no {relative}")
    return path
