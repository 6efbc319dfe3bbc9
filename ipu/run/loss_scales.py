"""Loss scales from the exponents of the gradients of a run.

A loss scale 2**k multiplies every gradient by 2**k, so it moves their exponents by k. The highest
safe scale is the largest power of two with which no gradient result of the run overflows. The best
one is, of the powers of two up to a quarter of that, as other batches differ, and the present
scale, the one at which the gradients lose the fewest significant digits to subnormal numbers and
zero; of several the nearest to the present one.

Results that underflowed to zero were not seen. There are at least as many as the underflow flags
exceed the subnormal results; they are taken for the largest values that underflow. Matrix units
raise no underflow, and what follows a zero is zero without a flag: zeros of layers whose gradients
are all zero, or subnormal to a tenth, are told apart as of unknown size, and are no part of `lost`.

Source    Micikevicius et al. 2018 (loss scaling); `fpsim.inspect.profile` (digits lost).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fpsim.records.formats import Format
from fpsim.state.processor import usual_arithmetic
from ipu.run.exponents import Histogram

__all__ = ["HOW", "LossScales", "find_scales"]

HOW = (
    "highest safe: the largest power of two with which no gradient result of this run overflows; "
    "best: of those up to a quarter of it, and the present one, the one at which gradients lose "
    "the fewest digits to subnormals and zero, nearest to the present scale; gradients that are "
    "zero already have no size and are in none of these figures"
)
#: Share of subnormal gradients from which on the zeros beside them are taken for vanished ones.
_TINY = 0.1
#: Powers of two that are looked at, beside the present scale.
_REACH = 40
#: Powers of two below the highest safe scale, which are left free.
_HEADROOM = 2
#: Of them, those beyond the present and the highest safe scale that a curve shows.
_SHOWN = 6


@dataclass(frozen=True)
class LossScales:
    """What the gradients of a run say about its loss scale.

    present         the scale of the run; 1 where the program has none that could be seen.
    highest_safe    None where gradients overflow already, or none are in a narrow format.
    best            None where highest_safe is.
    limited_by      the layer whose gradients are the largest of their format, or overflowed.
    lost            share of the gradients' digits lost now, and at the best scale.
    curve           that share by the power of two k of a scale 2**k times the present one.
    unseen          zeros among gradients that are subnormal or all zero: of unknown size.
    """

    present: float
    highest_safe: float | None
    best: float | None
    limited_by: str
    lost: tuple[float, float]
    curve: dict[int, float]
    unseen: int = 0


@usual_arithmetic
def find_scales(
    gradients: Iterable[Histogram],
    present: float = 1.0,
    overflowed: str = "",
    vanished: int = 0,
    bounds: Mapping[tuple[str, Format], float] | None = None,
) -> LossScales | None:
    """The scales that gradients in formats narrower than binary32 allow; None without any.

    overflowed    a layer whose gradients overflowed, or "".
    vanished      results that underflowed to zero.
    bounds        what the scale has multiplied beside gradients, such as the loss.

    >>> from fpsim import BINARY16
    >>> scales = find_scales([Histogram("head", BINARY16, {-20: 30, -3: 1}, 0, 0)])
    >>> scales.highest_safe, scales.best, scales.limited_by
    (262144.0, 64.0, 'head')
    """
    every = [h for h in gradients if h.format.emin > -100]
    narrow, unseen = [h for h in every if h.counts], sum(map(_unseen, every))
    if not narrow:
        return _without_gradients(present, overflowed, bounds or {}, unseen)
    limits = [(h.format.emax - max(h.counts), str(h.name)) for h in narrow]
    limit, layer = min([*limits, *_limits(bounds or {})], key=lambda pair: pair[0])
    now = _lost(narrow, 0, vanished)
    curve = {k: _lost(narrow, k, vanished) for k in range(-_SHOWN, min(limit, _REACH) + _SHOWN)}
    if overflowed:
        return LossScales(present, None, None, overflowed, (now, now), curve, unseen)
    highest = min(limit - _HEADROOM if limit > _HEADROOM else min(limit, 0), _REACH)
    steps = range(-_REACH, highest + 1)
    best = min(steps, key=lambda k: (_lost(narrow, k, vanished), abs(k)))
    lost = now, _lost(narrow, best, vanished)
    return LossScales(
        present, math.ldexp(present, limit), math.ldexp(present, best), layer, lost, curve, unseen
    )


def _limits(bounds: Mapping[tuple[str, Format], float]) -> list[tuple[int, str]]:
    """The powers of two by which numbers that a scale multiplies may grow, and what they are."""
    return [
        (fmt.emax + 1 - math.frexp(value)[1], name)
        for (name, fmt), value in bounds.items()
        if value
    ]


def _without_gradients(
    present: float, overflowed: str, bounds: Mapping[tuple[str, Format], float], unseen: int
) -> LossScales | None:
    """Scales of a run none of whose gradients is a number: they have overflowed, or the loss."""
    limit, layer = min(_limits(bounds), default=(0, ""))
    if overflowed:
        return LossScales(present, None, None, overflowed, (0.0, 0.0), {}, unseen)
    if limit >= 0:
        return None
    safe = math.ldexp(present, limit)
    return LossScales(present, safe, safe, layer, (0.0, 0.0), {}, unseen)


def _unseen(h: Histogram) -> int:
    """Zeros of a layer whose other gradients say that they may have vanished."""
    tiny = sum(n for exponent, n in h.counts.items() if exponent < h.format.emin)
    return h.zeros if tiny >= _TINY * sum(h.counts.values()) else 0


def _lost(histograms: list[Histogram], k: int, vanished: int) -> float:
    """Share of the digits of all gradients that 2**k loses."""
    lost = held = 0
    for h in histograms:
        for exponent, n in h.counts.items():
            lost += n * _digits_lost(h.format, exponent + k)
            held += n * h.format.precision
    widest: Format = histograms[0].format
    lost += vanished * _digits_lost(widest, widest.emin - widest.precision + k)
    held += vanished * widest.precision
    return lost / held


def _digits_lost(fmt: Format, exponent: int) -> int:
    """Significant digits that a value of this exponent lacks in the format."""
    if exponent > fmt.emax:
        return fmt.precision
    return min(max(fmt.emin - exponent, 0), fmt.precision)
