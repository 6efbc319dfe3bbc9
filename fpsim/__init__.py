"""fpsim: bit-exact low-precision floating point, with stochastic rounding and exception flags.

>>> import fpsim as fp
>>> half = fp.Context(fp.BINARY16)
>>> x = half.array([0.0004])
>>> (x + 0.25 - 0.25).values.tolist()
[0.00048828125]
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from fpsim.array import Array
from fpsim.block_array import BlockArray
from fpsim.context import Context
from fpsim.convenience import decode, encode, round_to
from fpsim.delayed_scales import DelayedScale
from fpsim.quantizers import quantize
from fpsim.records.blocks import Block, BlockFlags, find_block
from fpsim.records.flags import Flags, FloatingPointTrap
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    E1M6,
    E2M1FN,
    E2M3FN,
    E3M2FN,
    E4M3,
    E4M3FN,
    E5M2,
    E8M0,
    F143,
    F152,
    TF32,
    UE4M3,
    UE5M3,
    Format,
    find_format,
)
from fpsim.records.rounding import (
    RAZ,
    RNA,
    RNE,
    RNZ,
    RTN,
    RTO,
    RTP,
    RTZ,
    SR,
    SR_EQUAL,
    Rounding,
    Up,
    find_rounding,
)
from fpsim.records.transforms import Transform
from fpsim.records.units import MatrixUnit
from fpsim.state.bits import Philox, Replay, Xoroshiro128aox
from fpsim.state.threads import get_threads, set_threads

__all__ = [
    "BFLOAT16", "BINARY16", "BINARY32", "BINARY64", "E1M6", "E2M1FN", "E2M3FN", "E3M2FN",
    "E4M3", "E4M3FN", "E5M2", "E8M0", "F143", "F152", "RAZ", "RNA", "RNE", "RNZ", "RTN", "RTO",
    "RTP", "RTZ", "SR", "SR_EQUAL", "TF32", "UE4M3", "UE5M3", "Array", "Block", "BlockArray",
    "BlockFlags", "Context", "DelayedScale", "Flags", "FloatingPointTrap", "Format",
    "MatrixUnit", "Philox", "Replay", "Rounding", "Transform", "Up", "Xoroshiro128aox",
    "decode", "encode", "find_block", "find_format", "find_rounding", "get_threads", "quantize",
    "round_to", "set_threads",
]

__version__ = "1.0.0"

#: Modules that users name themselves: `fpsim.linalg` is imported when it is first asked for.
_MODULES = ("chop", "inspect", "linalg", "testing")


def __dir__() -> list[str]:
    """What users hold; modules of the inside are importable, and not shown."""
    return sorted({*__all__, *_MODULES, *(name for name in globals() if name.startswith("__"))})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fpsim.{name}")
    here = sys.modules[__name__]
    raise AttributeError(f"module 'fpsim' has no attribute {name!r}", name=name, obj=here)


class _Uncalled(ModuleType):
    """A module with a name that numpy gives a function: a call says what to call."""

    def __call__(self, *arguments: Any, **choices: Any) -> Any:
        raise TypeError(
            f"{self.__name__} is a module. Values need a format: fp.Context('binary16').array(x), "
            "or fp.round_to(x, 'binary16') for numpy's own arrays"
        )


for _name in ("fpsim.array", "fpsim.context"):
    sys.modules[_name].__class__ = _Uncalled
