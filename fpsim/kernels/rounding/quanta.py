"""Stochastic rounding of magnitudes below the smallest normal number, counted in quanta.

In lanes of 32 bits the magnitude is scaled so that a whole number of it has all the digits that SR
looks at. The random digits are added to that number, and what reaches the quanta is the result:
a fraction of the instructions that shifts by each lane's own digits take.

It is the rounding of `round_random` where no digits are left unseen between the tail's last and the
random ones: SR looks at as many digits of a normal number as everywhere, or at all that it loses.
Then random digits beyond those that an element owns are added to zeros, and carry nothing.

Source    docs/semantics.md §1 (which R carry).
"""

from __future__ import annotations

from fpsim.kernels.lanes.arithmetic import long_to_float, to_whole
from fpsim.kernels.lanes.vectors import as_bits, as_float, select

__all__ = ["round_in_quanta", "smallest_normal"]

#: Fields of binary32: digits below the exponent, and the field of 2**0 twice.
_FRACTION, _TWICE_BIAS = 23, 254


def smallest_normal(rule):
    """Its magnitude in lanes of 32 bits; 0 where the lanes' own subnormals need no care."""
    return rule.emin << _FRACTION


def round_in_quanta(a, word, rule):
    """Magnitudes a below the smallest normal number after SR, R in the top of the words; larger
    ones mean nothing.
    """
    # 2**random_most / quantum and its inverse; zeros where no lane needs them.
    none = rule.emin ^ rule.emin
    most = rule.random_most << _FRACTION
    unused = rule.emin == 0
    scale = as_float(select(unused, none, most + (_TWICE_BIAS << _FRACTION) - rule.quantum))
    back = as_float(select(unused, none, rule.quantum - most))
    digits = to_whole(as_float(a) * scale)
    drawn = word >> (32 - rule.random_most)
    return as_bits(long_to_float((digits + drawn) & ~((none + 1 << rule.random_most) - 1)) * back)
