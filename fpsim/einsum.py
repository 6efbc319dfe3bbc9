"""np.einsum of Arrays as products of matrices, in an order that its letters say.

Operands are contracted from the left, two at a time. What appears neither in the result nor in a
later operand is summed: in the order of first appearance in the subscripts, the last letter
innermost. A product starts with fl(a₀·b₀) and goes on with fl(s + fl(aₖ·bₖ)); one operand alone is
summed as `ctx.sum` does.

Source    the order is ours (docs/semantics.md §4); numpy's depends on its choice of loops.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpsim.composed import as_arrays

__all__ = ["einsum"]


def einsum(subscripts: Any, *operands: Any, optimize: Any = False) -> Any:
    """The contraction that the subscripts name."""
    if optimize not in (False, None):
        raise TypeError(
            f"optimize={optimize!r} is not offered for Array: it would choose the order of the "
            "roundings; leave it out"
        )
    inputs, output = _parsed(subscripts, len(operands))
    arrays = as_arrays(*operands)
    letters = "".join(dict.fromkeys("".join(inputs)))
    x, names = _diagonal(arrays[0], inputs[0])
    for k in range(1, len(arrays)):
        y, others = _diagonal(arrays[k], inputs[k])
        needed = output + "".join(inputs[k + 1 :])
        x, names = _product(x, names, y, others, needed, letters)
    summed = [c for c in letters if c in names and c not in output]
    if summed:
        order = [names.index(c) for c in summed]
        rest = [i for i in range(len(names)) if i not in order]
        context = x.context
        x = context.sum(np.transpose(x, rest + order), tuple(range(len(rest), x.ndim)))
        names = "".join(names[i] for i in rest)
    result = np.transpose(x, [names.index(c) for c in output])
    return result if summed or len(arrays) > 1 else result.copy()


def _parsed(subscripts: Any, n: int) -> tuple[list[str], str]:
    if not isinstance(subscripts, str):
        raise TypeError("np.einsum takes its subscripts as a text for Arrays, as in 'ij,jk->ik'")
    left, arrow, output = subscripts.replace(" ", "").partition("->")
    inputs = left.split(",")
    joined = "".join(inputs)
    if not (joined + output).isalpha() and joined + output:
        raise ValueError(f"subscripts={subscripts!r} hold more than letters; name each axis by one")
    if not arrow:
        output = "".join(sorted(c for c in set(joined) if joined.count(c) == 1))
    if len(inputs) != n or len(set(output)) != len(output) or not set(output) <= set(joined):
        raise ValueError(
            f"subscripts={subscripts!r} do not name {n} operands and a result of their letters"
        )
    return inputs, output


def _diagonal(x: Any, names: str) -> tuple[Any, str]:
    """x with each letter once: equal letters take a diagonal."""
    if x.ndim != len(names):
        raise ValueError(f"subscripts {names!r} name {len(names)} axes of an Array of {x.ndim}")
    for c in dict.fromkeys(names):
        while names.count(c) > 1:
            i, j = names.index(c), names.rindex(c)
            if x.shape[i] != x.shape[j]:
                raise ValueError(f"axes named {c!r} have lengths {x.shape[i]} and {x.shape[j]}")
            x = np.diagonal(x, 0, i, j)
            names = names[:i] + names[i + 1 : j] + names[j + 1 :] + c
    return x, names


def _product(
    x: Any, left: str, y: Any, right: str, needed: str, letters: str
) -> tuple[Any, str]:
    """The product over what is not needed any more; the names of its axes."""
    sizes = dict(zip(left, x.shape, strict=True))
    for c, n in zip(right, y.shape, strict=True):
        if sizes.setdefault(c, n) != n:
            raise ValueError(f"axes named {c!r} have lengths {sizes[c]} and {n}")
    both = [c for c in letters if c in sizes]
    summed = [c for c in both if c not in needed]
    batch = [c for c in both if c in needed and c in left and c in right]
    rows = [c for c in both if c in needed and c not in right]
    columns = [c for c in both if c in needed and c not in left]
    a = _laid_out(x, left, [*batch, *rows, *summed], summed, sizes)
    b = _laid_out(y, right, [*batch, *summed, *columns], summed, sizes)
    shape = [sizes[c] for c in batch]
    k, m, n = (math.prod(sizes[c] for c in part) for part in (summed, rows, columns))
    names = "".join([*batch, *rows, *columns])
    if not summed:
        a, b = a.reshape([*shape, m, 1]), b.reshape([*shape, 1, n])
        product = x.context.multiply(a, b)
    else:
        product = x.context.matmul(a.reshape([*shape, m, k]), b.reshape([*shape, k, n]))
    return product.reshape([sizes[c] for c in names]), names


def _laid_out(
    x: Any, names: str, wanted: list[str], spread: list[str], sizes: dict[str, int]
) -> Any:
    """Axes in the order wanted; a letter that x has not is spread over its length."""
    x = np.transpose(x, [names.index(c) for c in wanted if c in names])
    index = tuple(slice(None) if c in names else None for c in wanted)
    shape = [sizes[c] if c in names or c in spread else 1 for c in wanted]
    return np.broadcast_to(x[index], shape)
