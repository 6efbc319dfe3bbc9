"""Updates: the equations of optimisers, each once for each source that computes it in its way.

An equation is a pure function of a variable, its gradient, its slots and the numbers of the
optimiser: one call over a tensor gives the variable and the slots after the update.
`ipu.learn.optim` and every front end are names on these rows.

tensorflow    as XLA compiles them for a device; Keras' momentum too.
torch         as torch.optim computes them.
popart        as PopART's ops do, and PopTorch with them.
native        what `ipu.learn` has beside them.

Optimisers of Keras without a node of their own (Adam of Keras 3, LAMB of users) have no row: the
graph composes them from operations of the table.
"""

from __future__ import annotations

from ipu.ops.updates import native, popart, pytorch, tensorflow
from ipu.ops.updates.row import ALONE, Around, Updated, UpdateRow

__all__ = ["ALONE", "UPDATES", "Around", "UpdateRow", "Updated", "find_update"]

#: Every equation, by its name.
UPDATES: dict[str, UpdateRow] = {
    row.name: row
    for rows in (tensorflow.ROWS, pytorch.ROWS, popart.ROWS, native.ROWS)
    for row in rows
}


def find_update(name: str) -> UpdateRow:
    """The equation of that name.

    Raises    ValueError with the names that there are.
    """
    if name not in UPDATES:
        raise ValueError(f"update={name!r} is not known; use one of {', '.join(UPDATES)}")
    return UPDATES[name]
