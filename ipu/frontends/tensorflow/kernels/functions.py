"""Functions without an instruction: the host computes them in binary64, rounded once.

TensorFlow's own kernel runs on numbers in binary64; each result is rounded by the machine's
rounding into the format of the node, with flags and random bits. Reports list these nodes as host.
The machine's own last digit is unknown, as that of its instructions is (ASSUMED). Algorithms of
many operations, such as the inverse of a matrix, are no function of this kind: they are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from ipu.frontends.tensorflow.engine.values import FORMATS
from ipu.frontends.tensorflow.kernels.host import own_kernel
from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel

__all__: list[str] = []

_CURVES = (
    "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Atan2", "Sinh", "Cosh", "Asinh", "Acosh",
    "Atanh",
)  # fmt: skip
_SPECIAL = (
    "Erfc", "Erfinv", "Ndtri", "Lgamma", "Digamma", "Polygamma", "Zeta", "Igamma", "Igammac",
    "IgammaGradA", "Betainc", "BesselI0", "BesselI0e", "BesselI1", "BesselI1e", "BesselJ0",
    "BesselJ1", "BesselK0", "BesselK0e", "BesselK1", "BesselK1e", "BesselY0", "BesselY1", "Dawsn",
    "Expint", "FresnelCos", "FresnelSin", "Spence", "CumulativeLogsumexp",
)  # fmt: skip
_REMAINDERS = ("FloorMod", "TruncateMod", "Mod")
_WIDE = dict.fromkeys(FORMATS, tf.float64)


@kernel(*_CURVES, *_SPECIAL, *_REMAINDERS, "Range",
        rounding="binary64 on the host, then once", on_host=True)  # fmt: skip
def _function(site: Site) -> Run:
    own, context = own_kernel(site, kinds=_WIDE), site.device.context

    def run(*values: Any) -> Any:
        fmt = next(value.format for value in values if isinstance(value, Array))
        wide = [np.float64(v.carrier) if isinstance(v, Array) else v for v in values]
        return context(fmt).convert(own(*wide))

    return run
