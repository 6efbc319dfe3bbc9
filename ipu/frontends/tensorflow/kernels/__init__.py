"""Kernels by type of node; `load` enters those of every module in the table."""

import importlib
import pkgutil

__all__ = ["load"]


def load() -> None:
    """Import the modules of this room and of the room in it."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
