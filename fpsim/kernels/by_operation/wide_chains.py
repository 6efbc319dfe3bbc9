"""Chains of additions of binary64, one summand after the other."""

from __future__ import annotations

from fpsim.kernels.compiling import compiled

__all__ = ["add_chains"]


@compiled
def add_chains(parts, sums):
    """sums = the sums of parts over the third of four axes, which begin at its first summand."""
    outer, whole, length, inner = parts.shape
    for i in range(outer):
        for j in range(whole):
            if inner == 1:
                total = parts[i, j, 0, 0]
                for k in range(1, length):
                    total += parts[i, j, k, 0]
                sums[i, j, 0] = total
                continue
            for column in range(inner):
                sums[i, j, column] = parts[i, j, 0, column]
            for k in range(1, length):
                for column in range(inner):
                    sums[i, j, column] += parts[i, j, k, column]
