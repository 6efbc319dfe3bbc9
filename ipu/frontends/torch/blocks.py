"""Blocks without gradients: `no_grad`, `inference_mode`, `set_grad_enabled(False)`.

A program validates inside of such blocks. The outermost one is numbered, so that what it computes
draws random bits of its own, and moves none of the training's. torch's own `autograd.Function`
switches gradients off beneath these classes and opens no block.

The public classes are wrapped while a session is open; torch tells of no block by itself.

Source    docs/semantics.md §2 (named addresses, `evaluation`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

__all__ = ["Blocks"]

_Method = Callable[..., Any]


class Blocks:
    """The block that is open, in the thread that watches.

    may_open    whether a block that begins now is the program's, not part of a forward or backward
                pass or of an optimiser's step.
    closed      called after the end of a block in which something was computed.

    >>> blocks = Blocks(lambda: True, lambda: None)
    >>> with blocks.watching():
    ...     for _ in range(2):
    ...         with torch.no_grad(), torch.inference_mode():
    ...             blocks.is_open, blocks.number()
    ...     blocks.is_open
    (True, 0)
    (True, 1)
    False
    """

    def __init__(self, may_open: Callable[[], bool], closed: Callable[[], None]) -> None:
        self._may_open, self._closed = may_open, closed
        self._thread = 0
        #: The object that switched gradients off.
        #: What opened the block, if one is open.
        self.opener: object | None = None
        self._number: int | None = None
        #: Blocks that computed since the last step.
        self._count = 0
        #: Inside of one of the wrapped methods, which call one another.
        self._is_inside = False
        #: set_grad_enabled(False) opened it, as a statement.
        self._is_statement = False

    @property
    def is_open(self) -> bool:
        """Whether this thread is in a block and records no gradients."""
        return (
            self.opener is not None
            and self._thread == threading.get_ident()
            and not torch.is_grad_enabled()
        )

    def number(self) -> int:
        """Of the open block since the last step; blocks that ask for none are not counted."""
        if self._number is None:
            self._number, self._count = self._count, self._count + 1
        return self._number

    def end_step(self) -> None:
        """Blocks are numbered from 0 again, one that is open too."""
        self._number, self._count = None, 0

    # Watching -------------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Blocks that begin inside are seen; gradients that are off already are a block."""
        self._thread = threading.get_ident()
        self._is_statement = not torch.is_grad_enabled()
        self.opener = self if self._is_statement else None
        statement = torch.set_grad_enabled
        with ExitStack() as stack:
            for owner, entering, leaving in (
                (torch.no_grad, "__enter__", "__exit__"),
                (torch.inference_mode, "__enter__", "__exit__"),
                (statement, "__init__", "__exit__"),
            ):
                self._wrap(stack, owner, entering, self._entering)
                self._wrap(stack, owner, leaving, self._leaving)
            for name in ("__enter__", "__exit__"):
                self._wrap(stack, torch.enable_grad, name, self._passing)
            self._wrap(stack, statement, "__enter__", self._with)
            self._wrap(stack, statement, "__call__", self._decorating)
            try:
                yield
            finally:
                self._close()

    def _wrap(
        self, stack: ExitStack, owner: Any, name: str, how: Callable[[_Method], _Method]
    ) -> None:
        method = getattr(owner, name)
        is_inherited = name not in vars(owner)
        setattr(owner, name, how(method))
        if is_inherited:
            stack.callback(delattr, owner, name)
        else:
            stack.callback(setattr, owner, name, method)

    def _entering(self, method: _Method) -> _Method:
        def enter(block: Any, *arguments: Any, **options: Any) -> Any:
            if self._is_inside or self._thread != threading.get_ident():
                return method(block, *arguments, **options)
            were_on = torch.is_grad_enabled()
            result = self._call(method, block, arguments, options)
            are_on = torch.is_grad_enabled()
            if were_on and not are_on and self.opener is None and self._may_open():
                self.opener = block
                self._is_statement = isinstance(block, torch.set_grad_enabled)
            elif are_on and self._is_statement:
                self._close()  # set_grad_enabled(True) ends what a statement began
            return result

        return enter

    def _leaving(self, method: _Method) -> _Method:
        def leave(block: Any, *arguments: Any, **options: Any) -> Any:
            result = self._call(method, block, arguments, options)
            if self.opener is block:
                self._close()
            return result

        return leave

    def _with(self, method: _Method) -> _Method:
        """What began as a statement is the head of a block, which ends with it."""

        def enter(block: Any) -> Any:
            if self.opener is block:
                self._is_statement = False
            return self._call(method, block, (), {})

        return enter

    def _decorating(self, method: _Method) -> _Method:
        """set_grad_enabled as a decorator takes back what its construction switched."""

        def decorate(block: Any, *arguments: Any, **options: Any) -> Any:
            if self.opener is block:
                self._close()
            return self._call(method, block, arguments, options)

        return decorate

    def _passing(self, method: _Method) -> _Method:
        """A method that neither begins nor ends a block."""

        def passed(block: Any, *arguments: Any, **options: Any) -> Any:
            return self._call(method, block, arguments, options)

        return passed

    def _call(self, method: _Method, block: Any, arguments: Any, options: Any) -> Any:
        if self._thread != threading.get_ident():
            return method(block, *arguments, **options)
        before, self._is_inside = self._is_inside, True
        try:
            return method(block, *arguments, **options)
        finally:
            self._is_inside = before

    def _close(self) -> None:
        has_computed, self.opener, self._number = self._number is not None, None, None
        self._is_statement = False
        if has_computed:
            self._closed()
