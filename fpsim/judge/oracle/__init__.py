"""The slow judge: every operation with exact fractions, written from the definitions.

Used by tests only. It shares the records Format, Rounding and Flags with the core and no code.
Operands and results are codes (integers), so -0 and every NaN compare without ado.

>>> from fpsim.records.formats import BINARY16
>>> code, flags = operate("add", (0x3C00, 0x0001), BINARY16)
>>> hex(code), flags
('0x3c00', <Flags.INEXACT: 1>)
"""

from fpsim.judge.oracle.operations import convert, from_integer, operate, to_integer
from fpsim.judge.oracle.random import (
    elementwise_R,
    elementwise_word,
    philox,
    product_R,
    product_word,
    spawn_seed,
)
from fpsim.judge.oracle.rounding import (
    Datum,
    OracleSettings,
    canonical_nan,
    decode,
    encode,
    round_exact,
)

__all__ = [
    "Datum",
    "OracleSettings",
    "canonical_nan",
    "convert",
    "decode",
    "elementwise_R",
    "elementwise_word",
    "encode",
    "from_integer",
    "operate",
    "philox",
    "product_R",
    "product_word",
    "round_exact",
    "spawn_seed",
    "to_integer",
]
