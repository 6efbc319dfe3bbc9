"""`IPUConfig`: the tree of options that a program sets before it uses the machine.

An option keeps the type of its default, and a name that is none is refused with the nearest one.
Nothing happens until `configure_ipu_system`.

Source    graphcore/tensorflow, tensorflow/python/ipu/config.py: rules and messages.
"""

from __future__ import annotations

import difflib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from copy import copy
from enum import Enum
from typing import Any

from ipu.frontends.tensorflow.settings.choices import (
    DeviceConnectionType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from ipu.frontends.tensorflow.settings.options import CATEGORIES, OPTIONS, AttributeMetadata
from ipu.frontends.tensorflow.settings.system import configure, reset

__all__ = [
    "AttributeMetadata", "DeviceConnectionType", "IPUConfig", "MergeRemoteBuffersBehaviour",
    "SchedulingAlgorithm", "SelectionOrder", "StochasticRoundingBehaviour", "configure_ipu_system",
    "reset_ipu_configuration",
]


class Category:
    """Options and categories below one name; the root's name is empty."""

    def __init__(self, path: str = "") -> None:
        start = f"{path}." if path else ""
        metadata = {
            name.removeprefix(start): row
            for name, row in _METADATA.items()
            if name.startswith(start) and "." not in name.removeprefix(start)
        }
        categories = {
            name: Category(row.name) for name, row in metadata.items() if row.type is None
        }
        values = {n: copy(row.default) for n, row in metadata.items() if row.type is not None}
        for name, value in (("_metadata", metadata), ("_categories", categories),
                            ("_values", values)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_metadata", "_categories", "_values"):
            raise AttributeError(name)
        if name in self._categories:
            return self._categories[name]
        if name in self._values:
            return self._values[name]
        close = difflib.get_close_matches(name, self._metadata)
        advice = f" Did you mean '{self._metadata[close[0]].name}'?" if close else ""
        raise ValueError(f"'{name}' is not a valid attribute of this config.{advice}")

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._metadata:
            getattr(self, name)
        metadata = self._metadata[name]
        if metadata.deprecated:
            warnings.warn(
                f"{metadata.name} has been deprecated: {metadata.deprecated_msg}",
                FutureWarning,
                stacklevel=2,
            )
        if name in self._categories:
            raise AttributeError(f"{metadata.name} is a category and cannot be assigned to.")
        metadata.check_type(value)
        self._values[name] = value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._metadata]

    def _options(self) -> Iterator[tuple[AttributeMetadata, Any]]:
        """Every option below here and its value."""
        for name, metadata in self._metadata.items():
            if name in self._categories:
                yield from self._categories[name]._options()
            else:
                yield metadata, self._values[name]

    def to_dict(self) -> dict[str, Any]:
        """Values by full name; members of enumerations as their numbers."""
        return {
            metadata.name: value.value if isinstance(value, Enum) else value
            for metadata, value in self._options()
        }

    def from_dict(self, dct: Mapping[str, Any]) -> None:
        """Take values by full name; an option that has none keeps its own, with a warning.

        Raises    ValueError for a name that is no option.
        """
        names = {metadata.name for metadata, _ in self._options()}
        for name in dct:
            if name not in names:
                close = difflib.get_close_matches(name, names, 1)
                advice = f" Did you mean '{close[0]}'?" if close else ""
                raise ValueError(f"'{name}' is not a valid attribute of this config.{advice}")
        self._take(dct)

    def _take(self, dct: Mapping[str, Any]) -> None:
        for name, metadata in self._metadata.items():
            if name in self._categories:
                self._categories[name]._take(dct)
            elif metadata.name not in dct:
                warnings.warn(
                    f"{metadata.name} didn't have a value: the existing value will be retained",
                    RuntimeWarning,
                    stacklevel=2,
                )
            else:
                value, default = dct[metadata.name], metadata.default
                parsed = type(default)(value) if isinstance(default, Enum) else value
                if parsed != self._values[name]:
                    setattr(self, name, parsed)

    def to_json(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict())

    def from_json(self, json_cfg: str) -> None:
        """`from_dict` of JSON."""
        self.from_dict(json.loads(json_cfg))

    def get_attribute_metadata(self, attr: str) -> AttributeMetadata:
        """What is known about an option or category, by its name below here.

        Raises    ValueError for a name that is none.
        """
        *above, last = attr.split(".")
        try:
            category = self
            for part in above:
                category = getattr(category, part)
            getattr(category, last)
            metadata: AttributeMetadata = category._metadata[last]
        except (ValueError, KeyError, AttributeError) as error:
            raise ValueError(f"Could not get attribute metadata for '{attr}': {error}") from None
        return metadata

    def __str__(self) -> str:
        return os.linesep.join(
            f"{metadata.name} = {value if isinstance(value, Enum) else repr(value)}"
            for metadata, value in self._options()
        )

    def __repr__(self) -> str:
        return os.linesep.join([f"{type(self).__name__}:", *(f"  {line}" for line in self._lines)])

    @property
    def _lines(self) -> list[str]:
        return str(self).split(os.linesep)


_METADATA = OPTIONS | {name: AttributeMetadata(name, doc) for name, doc in CATEGORIES.items()}


class IPUConfig(Category):
    """Options of the machine; see `ipu.frontends.tensorflow.settings.options` for all of them.

    >>> config = IPUConfig()
    >>> config.auto_select_ipus = 1
    >>> config.matmul.poplar_options = {"partialsType": "half"}
    Traceback (most recent call last):
    ...
    ValueError: 'matmul' is not a valid attribute of this config. Did you mean 'matmuls'?
    >>> print(config.floating_point_behaviour)  # doctest: +ELLIPSIS
    floating_point_behaviour.inv = False
    floating_point_behaviour.div0 = False
    floating_point_behaviour.oflo = False
    floating_point_behaviour.esr = StochasticRoundingBehaviour.OFF
    ...
    """

    def __init__(self) -> None:
        super().__init__()

    def configure_ipu_system(self, device: str = "cpu") -> None:
        """Make this the machine's configuration; what runs from now on obeys it.

        Raises    ValueError for options that exclude each other.
        """
        configure_ipu_system(self, device)


def configure_ipu_system(
    config: IPUConfig, device: str = "cpu", reset_configuration: bool = True
) -> None:
    """Make a config the machine's configuration.

    device                 the host's TensorFlow device; there is one host here.
    reset_configuration    whether another configuration may be replaced.

    Raises    TypeError for another object, ValueError for options that exclude each other.
    """
    if not isinstance(config, IPUConfig):
        raise TypeError("`config` must be an IpuOptions instance.")
    configure(config.to_dict(), reset_configuration=reset_configuration)


def reset_ipu_configuration() -> None:
    """The machine is not configured any more."""
    reset()
