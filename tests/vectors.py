"""Where external vectors and data sets lie; tests that need them skip with the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def vector_path(relative: str) -> Path:
    """A file or folder below FPSIM_VECTORS; the calling test carries `@pytest.mark.vectors`."""
    return _external("FPSIM_VECTORS", relative)


def data_path(relative: str) -> Path:
    """A file or folder below FPSIM_DATA (data sets)."""
    return _external("FPSIM_DATA", relative)


def _external(variable: str, relative: str) -> Path:
    folder = os.environ.get(variable)
    if not folder:
        pytest.skip(f"{variable} is not set")
    path = Path(folder) / relative
    if not path.exists():
        pytest.skip(f"{variable} holds no {relative}")
    return path
