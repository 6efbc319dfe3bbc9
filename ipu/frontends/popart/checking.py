"""Records whose attributes are fixed: unknown names and values of other types are refused."""

from __future__ import annotations

import difflib
from typing import get_type_hints

__all__ = ["Checked"]


class Checked:
    """A record: annotations of the class name attributes, types and defaults.

    Raises    AttributeError for an unknown name, TypeError for a value of another type.
    """

    def __init__(self, **values: object) -> None:
        for name, value in values.items():
            setattr(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        types = get_type_hints(type(self))
        kind = types.get(name)
        if kind is None:
            close = difflib.get_close_matches(name, types, 1)
            hint = f"; did you mean {close[0]}" if close else f"; there are {', '.join(types)}"
            raise AttributeError(f"{type(self).__name__} has no {name}{hint}")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(f"{name}={value!r} is no {kind.__name__}; use one")
        object.__setattr__(self, name, value)
