"""Kernels of torch that compute a layer or a program as one piece: a session runs without them.

Attention, encoder layers, recurrent layers and compiled functions are cut into the operations that
they are written in, each of which the machine computes.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = ["without_whole_kernels"]


@contextmanager
def without_whole_kernels() -> Iterator[None]:
    """Nothing inside runs as one piece; outside everything is as it was."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    with sdpa_kernel(SDPBackend.MATH), _without_compilation(), _without_mkldnn():
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast_path)


@contextmanager
def _without_compilation() -> Iterator[None]:
    """Compiled functions run as they are written: a compiled graph is not seen here.

    The compiler takes seconds to import, so a program that has not done so is not made to.
    """
    compile_before = torch.compile
    with ExitStack() as stack:

        def run_eagerly() -> None:
            stack.enter_context(torch.compiler.set_stance("force_eager"))

        @wraps(compile_before)
        def compiling(*arguments: Any, **options: Any) -> Any:
            if torch.compile is compiling:
                torch.compile = compile_before
                run_eagerly()
            return compile_before(*arguments, **options)

        if "torch._dynamo" in sys.modules:
            run_eagerly()
        else:
            torch.compile = compiling
            stack.callback(setattr, torch, "compile", compile_before)
        yield


@contextmanager
def _without_mkldnn() -> Iterator[None]:
    """Recurrent layers are cut into operations instead of running as one kernel."""
    flags = torch.backends.mkldnn.flags(enabled=False)
    with warnings.catch_warnings():
        # Setting a flag of these warns of Intel's graphics processors.
        warnings.simplefilter("ignore", UserWarning)
        flags.__enter__()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            flags.__exit__(None, None, None)
