"""What the processor has that kernels are compiled for: the host, or the one that numba was told.

Constants of the process: results are the same bits whatever they say.
"""

from __future__ import annotations

from llvmlite import binding
from numba.core import config

from fpsim.kernels.levels import host_features
from fpsim.kernels.status_register import IS_ARM

__all__ = [
    "HAS_ADDERS",
    "HAS_FMA",
    "HAS_HALF",
    "HAS_INEXACT_FLAG",
    "HAS_QUIET_ADD",
    "PRODUCT_BITS",
]


def _target_has(feature: str) -> bool:
    if config.CPU_FEATURES is not None:
        return f"+{feature}" in config.CPU_FEATURES.split(",")
    return feature in host_features()


#: Whether the processor fuses multiply and add (else a call would do it, slowly).
HAS_FMA = IS_ARM or _target_has("fma")
#: Whether it adds and multiplies numbers of 16 bits itself.
HAS_HALF = _target_has("avx512fp16")
#: Whether its status tells that an operation was inexact.
HAS_INEXACT_FLAG = IS_ARM or _target_has("sse2")
#: Whether it can add without raising that flag, and convert toward zero.
HAS_QUIET_ADD = _target_has("avx512f")
#: Whether it adds on other ports than it multiplies on (AMD's Zen), so that a fused multiply-add
#: in the place of a sum takes time from the products.
HAS_ADDERS = (config.CPU_NAME or binding.get_host_cpu_name()).startswith("znver")

#: Bits of a vector in the kernels of products: those of a register, since a tile of them has to
#: stay in registers. An ARM has 32 registers of 128 bits, which hold what 16 of 256 bits do.
#: Elsewhere vectors have 512 bits, which the compiler splits.
PRODUCT_BITS = 512 if HAS_QUIET_ADD else 256
