"""Folders with small data sets in the original formats."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np


def write_mnist(folder: Path, counts: dict[str, int], name: str = "mnist") -> None:
    """Files of so many images each; image i holds i modulo 251, its label i modulo 10."""
    (folder / name).mkdir()
    for stem, n in counts.items():
        planes = np.repeat(np.arange(n) % 251, 28 * 28).astype(np.uint8)
        labels = (np.arange(n) % 10).astype(np.uint8)
        for kind, sizes, data in (
            ("images-idx3", (n, 28, 28), planes),
            ("labels-idx1", (n,), labels),
        ):
            head = bytes((0, 0, 8, len(sizes))) + b"".join(s.to_bytes(4, "big") for s in sizes)
            path = folder / name / f"{stem}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(head + data.tobytes(), 1))
