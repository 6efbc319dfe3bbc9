"""Blocks: where a model may be cut. Their names are put into stages by an execution strategy.

`Block` is a context, `BeginBlock` marks a module from whose call on a block lasts until the next
one begins, `BlockFunction` is a decorator. What stands outside of every block belongs to the block
that ran last, and before the first one to the first stage (ASSUMED).

Source    Graphcore's PopTorch, python/ops.py: arguments, automatic names, texts of errors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, Protocol

import torch

__all__ = [
    "BeginBlock", "Block", "BlockFunction", "Listener", "listener", "listening", "removeBlocks",
]


class Listener(Protocol):
    """What is told of blocks while a model runs."""

    def enter_block(self, user_id: str | None, ipu_id: int | None) -> None: ...
    def reset_block_numbers(self) -> None: ...
    def mark_loss(self, tensor: torch.Tensor) -> None: ...


_listeners = threading.local()


class listening:  # noqa: N801
    """Blocks that this thread enters inside are told to the listener.

    told    what hears of them.

    Outside of it blocks do nothing, so that a model with blocks runs as any other.
    """

    def __init__(self, told: Listener) -> None:
        self._told = told

    def __enter__(self) -> None:
        self._before = getattr(_listeners, "current", None)
        _listeners.current = self._told

    def __exit__(self, *error: Any) -> None:
        _listeners.current = self._before


def listener() -> Listener | None:
    """What is told now, if a model of PopTorch runs."""
    return getattr(_listeners, "current", None)


def _checked(user_id: Any, ipu_id: Any) -> None:
    if user_id is not None and not isinstance(user_id, str):
        raise TypeError(f"user_id={user_id!r} is not a name of a block; use a str")
    if ipu_id is not None and (isinstance(ipu_id, bool) or not isinstance(ipu_id, int)):
        raise TypeError(f"ipu_id={ipu_id!r} is not the number of an IPU; use an int")
    if ipu_id is not None and ipu_id < 0:
        raise ValueError(f"ipu_id={ipu_id} is not the number of an IPU; use 0 or more")


class Block:
    """The layers inside belong to one block.

    user_id    its name; blocks of one name are one block. Without it PopTorch counts: "0", "1" …
    ipu_id     the IPU, where no stage says another.

    >>> with Block("encoder"):
    ...     pass
    """

    def __init__(self, user_id: str | None = None, ipu_id: int | None = None) -> None:
        _checked(user_id, ipu_id)
        self._user_id, self._ipu_id = user_id, ipu_id

    @staticmethod
    def useAutoId() -> None:
        """Names of blocks without one start again at "0": called at the start of `forward`."""
        told = listener()
        if told is not None:
            told.reset_block_numbers()

    def __enter__(self) -> Block:
        told = listener()
        if told is not None:
            told.enter_block(self._user_id, self._ipu_id)
        return self

    def __exit__(self, *error: Any) -> None:
        """What follows belongs to the same stage until another block begins."""


class _BlockHook:
    """Before a module's call: its block begins."""

    def __init__(self, user_id: str | None, ipu_id: int | None) -> None:
        self._block = user_id, ipu_id

    def __call__(self, module: torch.nn.Module, arguments: Any) -> None:
        told = listener()
        if told is not None:
            told.enter_block(*self._block)


def BeginBlock(layer_to_call: Any, user_id: str | None = None, ipu_id: int | None = None) -> Any:
    """A block begins with this module, or function, and lasts until another one begins.

    Raises    TypeError for what is neither; RuntimeError for a module that begins a block already.

    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    >>> BeginBlock(net[1], "last", ipu_id=1)
    Linear(in_features=3, out_features=1, bias=True)
    >>> BeginBlock(net[1], "again")
    Traceback (most recent call last):
    ...
    RuntimeError: module has already been assigned to a block.
    """
    _checked(user_id, ipu_id)
    if not isinstance(layer_to_call, torch.nn.Module):
        if not callable(layer_to_call):
            raise TypeError("module is not an instance of torch.nn.Module or function.")
        return _begun(layer_to_call, _BlockHook(user_id, ipu_id))
    if any(isinstance(hook, _BlockHook) for hook in layer_to_call._forward_pre_hooks.values()):
        raise RuntimeError("module has already been assigned to a block.")
    layer_to_call.register_forward_pre_hook(_BlockHook(user_id, ipu_id))
    return layer_to_call


def removeBlocks(module: torch.nn.Module) -> None:
    """No module inside of this one begins a block any more, nor does it itself.

    Raises    AssertionError for what is no module, as PopTorch does.

    >>> net = torch.nn.Sequential(BeginBlock(torch.nn.Linear(2, 1), "first"))
    >>> removeBlocks(net)
    >>> _ = BeginBlock(net[0], "another name")  # it begins none, so it may begin one
    """
    if not isinstance(module, torch.nn.Module):
        raise AssertionError(f"removeBlocks: {module!r} is not an instance of torch.nn.Module")
    for inner in module.modules():
        hooks = inner._forward_pre_hooks
        for key in [key for key, hook in hooks.items() if isinstance(hook, _BlockHook)]:
            del hooks[key]


def _begun(function: Callable[..., Any], hook: _BlockHook) -> Callable[..., Any]:
    @wraps(function)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        hook(None, arguments)
        return function(*arguments, **options)

    return wrapper


def BlockFunction(
    user_id: str | None = None, ipu_id: int | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the layers that the function calls are one block.

    >>> @BlockFunction("decoder", ipu_id=1)
    ... def decode(x):
    ...     return x
    >>> decode(3)
    3
    """
    _checked(user_id, ipu_id)

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*arguments: Any, **options: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*arguments, **options)

        return wrapper

    return decorator
