"""Kernels by type of node; `load` enters those of every module in the table."""

import importlib
import pkgutil

__all__ = ["load"]


def load() -> None:
    """Import the modules of this room."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
