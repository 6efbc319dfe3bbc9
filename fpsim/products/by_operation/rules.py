"""What settings say of a product rounded after every operation, found once for each of them.

Which kernels know the mode and the policies, and which bounds follow from the format alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.constants import exact_width, mode_number
from fpsim.kernels.by_operation.deterministic import MacVariant
from fpsim.kernels.by_operation.lane_rounding import (
    BY_SIDE,
    DIRECTIONS,
    FUSED_MODES,
    INTEGER_MODES,
    NATIVE_MODES,
)
from fpsim.kernels.by_operation.results import NOWHERE
from fpsim.kernels.rounding.modes import RNE
from fpsim.kernels.status_register import HAS_STATUS, TININESS, TO_NEAREST
from fpsim.kernels.target import HAS_ADDERS, HAS_FMA
from fpsim.records.formats import BINARY16, BINARY32
from fpsim.records.settings import Settings

__all__ = ["MacRules", "mac_rules"]


class MacRules:
    """Settings of products, with what fast kernels ask of them.

    is_ordinary      the fast kernels know the mode and the policies.
    native_bits      of a format that processors have, under a mode and policies that this one has;
                     0: of no such one.
    certain_tiny     the processor tells of underflow by the rule of the settings. One that looks
                     before rounding tells too often where they ask for it after.
    to_nearest       the processor rounds to nearest beneath the mode.
    in_integers      a product is rounded as an integer where none is small.
    shows_overflow   overflow leaves an infinity or NaN behind, which no later term removes.
    narrow           lanes of 32 bits hold what rounds into the format.
    need             digits that lanes must have.
    constants        of the kernels, by the width of their lanes; filled as they are asked for.
    variant          of the kernels, where nothing is known of the operands.
    """

    __slots__ = (
        "certain_tiny", "constants", "fused", "in_integers", "is_ordinary", "largest", "mode",
        "narrow", "native_bits", "need", "precision", "random_most", "settings", "shows_overflow",
        "smallest_normal", "smallest_subnormal", "to_nearest", "variant",
    )

    def __init__(self, settings: Settings, fused: bool) -> None:
        fmt, rounding = settings.format, settings.rounding
        self.settings, self.fused, self.mode = settings, fused, mode_number(rounding)
        self.precision, self.largest = fmt.precision, fmt.max
        self.smallest_normal, self.smallest_subnormal = fmt.smallest_normal, fmt.smallest_subnormal
        self.random_most = settings.random_most
        self.is_ordinary = (
            HAS_STATUS
            and self.mode in (FUSED_MODES if fused else DIRECTIONS)
            and rounding.residual == "truncate"
            and settings.subnormals == "keep"
            and settings.nan == "canonical"
            and not settings.quiet_nan_raises
        )
        is_native = (
            fmt in (BINARY32, BINARY16)
            and self.mode in NATIVE_MODES
            and settings.overflow == "infinity"
            and settings.tininess in ("after", TININESS)
            and (HAS_FMA or not fused)
        )
        self.native_bits = fmt.bits if is_native else 0
        self.certain_tiny = settings.tininess == TININESS
        direction = DIRECTIONS.get(self.mode, TO_NEAREST)
        self.to_nearest = direction == TO_NEAREST and self.mode in DIRECTIONS
        self.in_integers = not fused and self.mode in INTEGER_MODES
        stops = any(rounding.stops_at_largest(sign) for sign in (False, True))
        self.shows_overflow = settings.overflow != "saturate" and not stops
        self.narrow = exact_width("convert", settings, fmt.carrier.itemsize) == 32
        self.need = self._digits()
        self.constants: dict[int, tuple[NDArray[np.unsignedinteger], int]] = {}
        self.variant = MacVariant(
            self.mode, direction, fused, False, False, NOWHERE, BY_SIDE, 0,
            HAS_FMA, False, False, HAS_ADDERS and self.mode == RNE and not fused,
        )

    def _digits(self) -> int:
        p = self.precision
        need = max(2 * p, p + 2) if self.fused else 2 * p
        if self.to_nearest and not self.fused:
            need = 2 * p + 2
        if self.settings.rounding.stochastic:
            need = max(need, p + self.settings.random_bits)
        return need


def mac_rules(settings: Settings, fused: bool) -> MacRules:
    """The rules of these settings, which keep them."""
    key = ("fused" if fused else "separate", 0, 0, False)
    rules: MacRules | None = settings.calls.get(key)
    if rules is None:
        rules = settings.calls[key] = MacRules(settings, fused)
    return rules
