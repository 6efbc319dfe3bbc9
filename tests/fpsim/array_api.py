"""The array API of a binary32 context as a module, as data-apis/array-api-tests takes it."""

from __future__ import annotations

from typing import Any

import fpsim as fp
from fpsim.array_namespace import Namespace

_NAMESPACE = Namespace(fp.Context(fp.BINARY32, asarray="allow"))


def __getattr__(name: str) -> Any:
    return getattr(_NAMESPACE, name)


def __dir__() -> list[str]:
    return list(dir(_NAMESPACE))
