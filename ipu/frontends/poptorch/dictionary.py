"""Options as a strict dictionary: known names only, of their own types, printed as PopTorch prints.

Source    Graphcore's PopTorch, python/_options_impl.py, and the printed options of its tutorials.
"""

from __future__ import annotations

import copy
import warnings
from typing import Any, TypeVar

__all__ = ["OptionsDict", "once"]

Own = TypeVar("Own", bound="OptionsDict")
_told: set[str] = set()


def once(name: str, why: str, *, is_partial: bool = False) -> None:
    """Tell the user, once in a process, of what is accepted and not modelled, or not all of it."""
    if name not in _told:
        _told.add(name)
        what = "does a part of its work" if is_partial else "is accepted and has no effect"
        warnings.warn(f"{name} {what} here: {why}", UserWarning, 3)


class OptionsDict:
    """Options by name; only names that are there can be set, to values of their types."""

    def __init__(self, **default_values: Any) -> None:
        self.__dict__["_values"] = default_values
        self.__dict__["_is_frozen"] = False

    def set(self, **options: Any) -> None:
        """Set options that are there.

        Raises    ValueError for an unknown one, TypeError for a value of another type,
                  AttributeError when a model was compiled with them.
        """
        for name, value in options.items():
            self._check_name(name)
            expected = type(self._values[name])
            is_bool = isinstance(value, bool) and expected is not bool
            if not isinstance(value, expected) or is_bool:
                raise TypeError(
                    f"Unexpected type {type(value).__name__} for option {name}. Expected "
                    f"{expected.__name__}"
                )
            self._write(name, value)

    def createOrSet(self, **options: Any) -> None:
        """Set options, also new ones."""
        for name, value in options.items():
            if name in self._values:
                self.set(**{name: value})
            else:
                self._write(name, value)

    def _write(self, name: str, value: Any) -> None:
        if self._is_frozen:
            raise AttributeError(
                f"Can't modify frozen Options: {name} was set after a model was compiled with "
                "them; use options.clone()"
            )
        self._values[name] = value

    def deleteIfExists(self, option: str) -> None:
        """Back to undefined."""
        self._values.pop(option, None)

    def exists(self, option: str) -> bool:
        """Whether there is an option of that name."""
        return option in self._values

    def freeze(self) -> None:
        """No changes from now on."""
        self.__dict__["_is_frozen"] = True

    def toDict(self) -> dict[str, Any]:
        """All options by name."""
        return dict(self._values)

    def _check_name(self, name: str) -> None:
        if name not in self._values:
            raise ValueError(f"Invalid option {name}, valid options are {list(self._values)}")

    def __getattr__(self, option: str) -> Any:
        values = self.__dict__.get("_values", {})
        if option.startswith("__") or option not in values:
            raise AttributeError(f"Invalid option {option}, valid options are {list(values)}")
        return values[option]

    def __setattr__(self, option: str, value: Any) -> None:
        raise AttributeError(
            f"options are set by calls: {type(self).__name__.strip('_')}.{option}(…), not by "
            "assignment"
        )

    def __call__(self, option: str) -> Any:
        self._check_name(option)
        return self._values[option]

    def __deepcopy__(self: Own, memo: dict[int, Any]) -> Own:
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        for name, value in self.__dict__.items():
            twin.__dict__[name] = copy.deepcopy(value, memo)
        twin.__dict__["_is_frozen"] = False
        return twin

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self._values.items())
        return f"{type(self).__name__}({inside})"


def check_number(name: str, value: Any, least: int = 1) -> None:
    """Refuses what is no whole number, or too small a one."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}({value!r}): use a whole number, {least} or more")
    if value < least:
        raise ValueError(f"{name}({value}): use {least} or more")


def check_bool(name: str, value: Any) -> None:
    """Refuses what is neither True nor False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name}({value!r}): use True or False")
