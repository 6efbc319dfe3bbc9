"""PopART's session options: the names of a plan. There is no session, which the other names run.

Source    graphcore/popart, include/popart/sessionoptions.hpp and tensorlocation.hpp: names, types,
          defaults.
"""

from ipu.frontends.popart.locations import (
    ReplicatedTensorSharding,
    TensorLocation,
    TensorLocationSettings,
    TensorStorage,
)
from ipu.frontends.popart.options import SessionOptions

__all__ = [
    "ReplicatedTensorSharding", "SessionOptions", "TensorLocation", "TensorLocationSettings",
    "TensorStorage",
]
