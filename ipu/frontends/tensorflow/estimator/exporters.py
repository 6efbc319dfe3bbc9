"""Exporters of `EvalSpec`: called after each evaluation with its checkpoint.

`BestExporter`, `FinalExporter` and `LatestExporter` write a graph for serving, and are refused: a
program of the machine is no graph that a server could load.

Source    tensorflow/estimator, exporter.py: interface; training.py: checks and messages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["SERVING", "Exporter", "checked_exporters"]

#: Exporters of TensorFlow that are refused.
SERVING = ("BestExporter", "FinalExporter", "LatestExporter")


class Exporter(ABC):
    """Keeps what a program wants of a checkpoint that was evaluated."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Of the folder below model_dir/export."""

    @abstractmethod
    def export(
        self, estimator: Any, export_path: str, checkpoint_path: str, eval_result: dict[str, Any],
        is_the_final_export: bool,
    ) -> str | None:
        """Export a checkpoint; the folder, or None where nothing is exported."""


def checked_exporters(exporters: Any) -> tuple[Exporter, ...]:
    """The exporters of a spec: one, several or None.

    Raises    TypeError for other things; ValueError for names that are not texts of their own.
    """
    every = [exporters] if isinstance(exporters, Exporter) else exporters or ()
    try:
        every = tuple(every)
    except TypeError:
        every = (None,)
    if not all(isinstance(exporter, Exporter) for exporter in every):
        raise TypeError(
            f"`exporters` must be an Exporter, an iterable of Exporter, or `None`, found "
            f"{exporters}."
        )
    names = [exporter.name for exporter in every]
    for name in names:
        if not name:
            raise ValueError(
                "An Exporter cannot have a name that is `None` or empty. All exporter names: "
                f"{names}"
            )
        if not isinstance(name, str):
            raise ValueError(f"An Exporter must have a string name. Given: {type(name)}")
    if len(set(names)) < len(names):
        raise ValueError(
            "`exporters` must have unique names. Such a name cannot be `None`. All exporter names: "
            f"{names}"
        )
    return every
