"""The table of operations: forward rule, one backward rule per argument, roundings, cost, evidence.

A new operation is one more `Primitive` in the file of its family, and its name in the `__all__`
there. Backward rules run through the same device verbs and the same units as the forward pass, in
the format of the forward pass.

Source    docs/semantics.md §5 (units) and §6 (orders and roundings of primitives).
"""

from ipu.ops import (
    activations,
    arithmetic,
    bounds,
    contraction,
    functions,
    losses,
    moves,
    norms,
    pooling,
    probabilities,
    products,
    quantizing,
    random,
    reductions,
    resampling,
    scatter,
)
from ipu.ops.activations import *  # noqa: F403
from ipu.ops.arithmetic import *  # noqa: F403
from ipu.ops.bounds import *  # noqa: F403
from ipu.ops.contraction import *  # noqa: F403
from ipu.ops.functions import *  # noqa: F403
from ipu.ops.losses import *  # noqa: F403
from ipu.ops.moves import *  # noqa: F403
from ipu.ops.norms import *  # noqa: F403
from ipu.ops.pooling import *  # noqa: F403
from ipu.ops.primitive import Primitive
from ipu.ops.probabilities import *  # noqa: F403
from ipu.ops.products import *  # noqa: F403
from ipu.ops.quantizing import *  # noqa: F403
from ipu.ops.random import *  # noqa: F403
from ipu.ops.reductions import *  # noqa: F403
from ipu.ops.resampling import *  # noqa: F403
from ipu.ops.scatter import *  # noqa: F403

#: The families, each a module.
FAMILIES = (
    activations, arithmetic, bounds, contraction, functions, losses, moves, norms, pooling,
    probabilities, products, quantizing, random, reductions, resampling, scatter,
)

#: Every primitive by name.
PRIMITIVES: dict[str, Primitive] = {
    row.name: row
    for family in FAMILIES
    for row in (getattr(family, name) for name in family.__all__)
    if isinstance(row, Primitive)
}
