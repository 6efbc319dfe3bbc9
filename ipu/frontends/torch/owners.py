"""Which model of the program owns a piece of memory, in words.

A model that the program never called has no layer, as a copy whose weights are averages of
another one's. It is known by the name that the program gives it in its main module; by its class,
where that has none.
"""

from __future__ import annotations

import gc
import sys
from weakref import WeakKeyDictionary

import torch

__all__ = ["Owners"]


class Owners:
    """The outermost modules of the program, by their parameters.

    >>> net = torch.nn.Sequential(torch.nn.Linear(1, 1))
    >>> Owners().of(net[0].weight.untyped_storage())
    'a Sequential'
    """

    def __init__(self) -> None:
        self._names: WeakKeyDictionary[torch.UntypedStorage, str] = WeakKeyDictionary()
        modules = [x for x in gc.get_objects() if issubclass(type(x), torch.nn.Module)]
        inner = {id(child) for module in modules for child in module.children()}
        main = {id(x): name for name, x in vars(sys.modules["__main__"]).items()}
        for root in modules:
            if id(root) not in inner:
                name = main.get(id(root), f"a {type(root).__name__}")
                for parameter in root.parameters():
                    self._names[parameter.untyped_storage()] = name

    def of(self, storage: torch.UntypedStorage) -> str:
        """The name of the model whose parameter this is; "" of other memory."""
        return self._names.get(storage, "")
