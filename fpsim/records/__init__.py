"""Frozen facts: formats, rounding modes, flags, settings, evidence, matrix units, geometry.

Tensor cores are registered here, so no module below can be imported without them.
"""

from fpsim.records import scaled_units as _scaled_units  # noqa: F401  (registers its rows)
from fpsim.records import tensor_cores as _tensor_cores  # noqa: F401  (registers its rows)
