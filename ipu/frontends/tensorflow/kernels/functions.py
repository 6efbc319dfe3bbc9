"""Functions without an instruction: rows of `ipu.ops.functions`, which compute in binary64.

Of a few that numpy and SciPy do not have, TensorFlow's own kernel runs on numbers in binary64, and
each result is rounded by the machine's rounding into the format of the node, with flags and random
bits. Reports list these nodes as host.
The machine's own last digit is unknown, as that of its instructions is (ASSUMED). Algorithms of
many operations, such as the inverse of a matrix, are no function of this kind: they are refused.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from fpsim.array import Array
from ipu import ops
from ipu.frontends.tensorflow.engine.values import FORMATS
from ipu.frontends.tensorflow.kernels.host import own_kernel
from ipu.frontends.tensorflow.kernels.rows import values
from ipu.frontends.tensorflow.kernels.table import NodeSite, Run, kernel
from ipu.ops.rules import read_nan

__all__: list[str] = []

values({
    "Sin": ops.sin, "Cos": ops.cos, "Tan": ops.tan, "Asin": ops.asin, "Acos": ops.acos,
    "Atan": ops.atan, "Atan2": ops.atan2, "Sinh": ops.sinh, "Cosh": ops.cosh, "Asinh": ops.asinh,
    "Acosh": ops.acosh, "Atanh": ops.atanh, "Erfc": ops.erfc, "Erfinv": ops.erfinv,
    "Ndtri": ops.ndtri, "Lgamma": ops.lgamma, "Digamma": ops.digamma,
    "Polygamma": ops.polygamma, "Zeta": ops.zeta, "Igamma": ops.gammainc,
    "Igammac": ops.gammaincc, "Betainc": ops.betainc, "BesselI0": ops.bessel_i0,
    "BesselI0e": ops.bessel_i0e, "BesselI1": ops.bessel_i1, "BesselI1e": ops.bessel_i1e,
    "BesselJ0": ops.bessel_j0, "BesselJ1": ops.bessel_j1, "BesselK0": ops.bessel_k0,
    "BesselK0e": ops.bessel_k0e, "BesselK1": ops.bessel_k1, "BesselK1e": ops.bessel_k1e,
    "BesselY0": ops.bessel_y0, "BesselY1": ops.bessel_y1, "Dawsn": ops.dawson,
    "Expint": ops.expint, "FresnelCos": ops.fresnel_cos, "FresnelSin": ops.fresnel_sin,
    "Spence": ops.spence, "FloorMod": ops.floor_mod, "TruncateMod": ops.fmod, "Mod": ops.fmod,
})

#: What neither numpy nor SciPy has: TensorFlow's own kernel in binary64.
_OWN = ("IgammaGradA", "CumulativeLogsumexp", "Range")
_WIDE = dict.fromkeys(FORMATS, tf.float64)


@kernel(*_OWN, rounding="binary64 on the host, then once", on_host=True)
def _function(site: NodeSite) -> Run:
    kernel, context = own_kernel(site, kinds=_WIDE), site.device.context

    def run(*values: Any) -> Array:
        fmt = next(value.format for value in values if isinstance(value, Array))
        if any(isinstance(v, Array) and np.isnan(v.carrier).any() for v in values):
            read_nan(site.device, fmt)
        wide = [np.float64(v.carrier) if isinstance(v, Array) else v for v in values]
        return context(fmt).array(kernel(*wide))

    return run
