"""A small transformer that predicts the next byte of Python's own source texts.

The texts are modules of the standard library that every installation has as files; other versions
of Python have other texts, so a result names theirs by a digest.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["LENGTH", "byte_transformer", "digest", "text"]

#: Bytes that the model reads, and its sizes.
LENGTH, WIDTH, BLOCKS, HEADS = 64, 64, 3, 4

_MODULES = (
    "argparse", "ast", "_pydecimal", "difflib", "doctest", "inspect", "pickletools", "pydoc",
    "tarfile", "turtle", "typing",
)


@lru_cache
def text() -> NDArray[np.uint8]:
    """All texts, one after the other."""
    origins = [find_spec(name).origin for name in _MODULES]  # type: ignore[union-attr]
    parts = [Path(str(origin)).read_bytes() for origin in origins]
    return np.frombuffer(b"".join(parts), np.uint8)


def digest() -> str:
    """Of the texts: the first twelve digits of their SHA-256."""
    return hashlib.sha256(text().tobytes()).hexdigest()[:12]


def byte_transformer(torch: Any) -> Any:
    """Three blocks of attention and a hidden layer with norms before; a head without bias."""
    nn, functional = torch.nn, torch.nn.functional

    class ByteBlock(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            parts = self.qkv(self.before(x)).reshape(b, t, 3, HEADS, WIDTH // HEADS)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).reshape(b, t, WIDTH))
            return x + self.down(functional.gelu(self.up(self.between(x))))

    class ByteTransformer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.bytes = nn.Embedding(256, WIDTH)
            self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
            self.blocks = nn.Sequential(*(ByteBlock() for _ in range(BLOCKS)))
            self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256, bias=False)

        def forward(self, x: Any) -> Any:
            return self.head(self.norm(self.blocks(self.bytes(x) + self.places[: x.shape[1]])))

    return ByteTransformer()
