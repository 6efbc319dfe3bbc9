"""Names that a module of the vendor has and ours lacks, in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NoReturn

__all__ = ["no_name", "refusing"]


def no_name(module: str, name: str, names: Iterable[str]) -> str:
    """The sentence on a name that a module lacks; names are those that it has.

    >>> no_name("ipu.loops", "for_loop", ["repeat", "while_loop"])
    "ipu.loops has no 'for_loop' here; there are repeat, while_loop"
    """
    return f"{module} has no {name!r} here; there are {', '.join(names)}"


def refusing(
    module: str, missing: Collection[str], names: Collection[str]
) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module that lacks some of the vendor's names.

    Raises    NotImplementedError for these, AttributeError for other ones.
    """

    def refuse(name: str) -> NoReturn:
        if name in missing:
            raise NotImplementedError(
                f"{module}.{name} is not modelled; there are {', '.join(names)}"
            )
        raise AttributeError(no_name(module, name, names))

    return refuse
