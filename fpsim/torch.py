"""PyTorch programs on the simulated machine: the names of `ipu.frontends.torch`.

Needs the extra `torch` of the distribution. Nothing of fpsim imports this module.
"""

from ipu.frontends.torch import (
    Changes,
    Evaluation,
    Session,
    evaluate,
    evaluate_layers,
    machine,
    native,
)

__all__ = [
    "Changes", "Evaluation", "Session", "evaluate", "evaluate_layers", "machine", "native",
]
