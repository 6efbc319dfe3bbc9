"""A library of matrix products that a test puts in the place of OpenBLAS."""

from __future__ import annotations

__all__ = ["BlasLibrary"]


class BlasLibrary:
    """Its control of threads, which remembers what it is told."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.told: list[int] = []

    def get(self) -> int:
        return self.threads

    def set(self, n: int) -> None:
        self.threads = n
        self.told.append(n)
