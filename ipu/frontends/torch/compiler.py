"""torch's compiler: a session runs functions as they are written, and does not import it.

Its import takes as long as torch's own, so a program that has not done so is not made to.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch

__all__ = ["without_compiler"]


@contextmanager
def without_compiler() -> Iterator[None]:
    """Nothing inside is compiled: a compiled graph is not seen here."""
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        else:
            stack.enter_context(_until_asked_for())
        yield


@contextmanager
def _until_asked_for() -> Iterator[None]:
    """The first function that is compiled imports the compiler, and all run as they are written."""
    compile_before = torch.compile
    with ExitStack() as stack:

        @wraps(compile_before)
        def compiling(*arguments: Any, **options: Any) -> Any:
            if torch.compile is compiling:
                torch.compile = compile_before
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            return compile_before(*arguments, **options)

        torch.compile = compiling
        stack.callback(setattr, torch, "compile", compile_before)
        yield
