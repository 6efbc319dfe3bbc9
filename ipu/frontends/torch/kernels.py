"""Kernels of torch that compute a layer or a program as one piece: a session runs without them.

Attention, encoder layers, recurrent layers and compiled functions are cut into the operations that
they are written in, each of which the machine computes.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from ipu.frontends.torch.compiler import without_compiler

__all__ = ["without_whole_kernels"]


@contextmanager
def without_whole_kernels() -> Iterator[None]:
    """Nothing inside runs as one piece; outside everything is as it was."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    with sdpa_kernel(SDPBackend.MATH), without_compiler(), _without_mkldnn():
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            torch.backends.mha.set_fastpath_enabled(fast_path)


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
