"""Codes of values, and values of codes: integer arithmetic on lanes as wide as the carrier.

`fpsim.elementwise.codes` fills the constants of a format in; one loop serves every format of a
carrier and a storage width. The names of `Coding` are the only agreement between the two. Most
values are zeros and normal numbers: a vector of them takes a third of the instructions.

Source    IEEE 754-2019 §3.4 (encodings), §6.2.1 (NaN payloads).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.formula import formula, when
from fpsim.kernels.lanes.memory import (
    copy_item,
    copy_items,
    load_word,
    pointer,
    room,
    splat_item,
    store_low,
)
from fpsim.kernels.lanes.vectors import (
    any_lane,
    as_bits,
    as_float,
    infinity_like,
    or_lanes,
    quiet_like,
    select,
    sign_like,
    umax,
    umin,
    width_of,
)

__all__ = ["CHECK", "DECODE", "ENCODE", "Coding", "codec"]

#: What a loop does: codes of values, the same and where they are held, values of codes.
ENCODE, CHECK, DECODE = range(3)


class Coding(NamedTuple):
    """Constants of a format; magnitudes are bit patterns of the carrier, codes right-aligned."""

    drop: int  # digits of the carrier - precision
    hidden: int  # the carrier's leading digit
    smallest: int  # exponent field of the smallest normal, as the carrier has it
    offset: int  # what a normal magnitude has more than its code, shifted
    normal: int  # smallest normal magnitude
    largest: int  # largest finite magnitude
    nan_above: int  # magnitudes above it are held as NaN
    infinity_held: int  # the magnitude held as infinity
    infinity_code: int
    nan_code: int
    payload: int  # bits of a code that hold the payload of a NaN
    lost_payload: int  # what a NaN without payload gets
    mark_cleared: int  # cleared from the payload where the carrier's lowest bit is set …
    mark: int  # … as it is, with the quiet bit, where the payload has no quiet bit
    sign_shift: int  # from the sign of a code to that of the carrier
    zero_sign: int  # all ones where zero has a sign
    body: int  # a code without its sign
    first_normal: int  # code of the smallest normal
    special: int  # codes from here on are no numbers …
    special_bits: int  # … but these bits and the payload
    quantum: int  # exponent of the smallest subnormal, in the carrier's exponent field
    quantum_field: int  # whole numbers with a larger exponent field become normal
    own_shift: int  # the others are this much shifted


@formula
def _spread(k):
    return Coding(*(splat_item(k, i) for i in range(len(Coding._fields))))


def _encode(t, c):
    """Code of carrier bits, and where the format holds them."""
    sign = t & sign_like(t)
    a, zero = t ^ sign, t ^ t
    infinity, width = infinity_like(t), width_of(t)
    field = a >> (23 if width == 32 else 52)
    significand = (a & (c.hidden - 1)) | select(field == 0, zero, c.hidden)
    short = c.smallest - umin(c.smallest, umax(field, zero + 1))
    shift = umin(c.drop + short, zero + (width - 1))
    body = select(a < c.normal, significand >> shift, (a - c.offset) >> c.drop)
    lost = significand & (((zero + 1) << shift) - 1)
    payload = (a & (c.hidden - 1)) >> c.drop
    payload = select((a & 1) != 0, payload & ~c.mark_cleared, payload)
    payload = select(payload == 0, c.lost_payload, payload) & c.payload
    body = select(a > infinity, payload | c.nan_code, body)
    body = select(a == infinity, c.infinity_code, body)
    held = ((lost == 0) & (a <= c.largest)) | (a > c.nan_above) | (a == c.infinity_held)
    sign = select(a == 0, sign & c.zero_sign, sign)
    return body | (sign >> c.sign_shift), held


def _decode(code, c):
    """Carrier bits of a code."""
    body = code & c.body
    sign = (code ^ body) << c.sign_shift
    infinity, quiet = infinity_like(code), quiet_like(code)
    shift = 23 if width_of(code) == 32 else 52
    # A whole number, put under 2**23 or 2**52, less that: exact, and normal unless zero.
    above = (code ^ code) | ((127 + 23 if shift == 23 else 1023 + 52) << shift)
    whole = as_bits(as_float(body | above) - as_float(above))
    becomes_normal = (whole >> shift) > c.quantum_field
    small = select(becomes_normal, whole + c.quantum, body << c.own_shift)
    bits = select(body < c.first_normal, small, (body << c.drop) + c.offset)
    payload = (body & c.payload) << c.drop
    hidden = (payload != 0) & ((payload & quiet) == 0)
    payload = select(hidden, payload | c.mark, payload)
    bits = select(body >= c.special, payload | c.special_bits, bits)
    # Where zero has no sign, the code of -0 is the NaN.
    bits = select((body == 0) & ((sign & ~c.zero_sign) != 0), infinity | quiet, bits)
    return bits | select(body == 0, sign & c.zero_sign, sign)


def _encode_fast(t, c):
    """Codes of zeros and normal magnitudes, whether there are others, and digits that are lost."""
    sign = t & sign_like(t)
    a = t ^ sign
    is_number = (t & (~sign_like(t) | ~c.zero_sign)) != 0  # -0 where zero has a sign is a zero
    rare = is_number & ((a - c.normal) > (c.largest - c.normal))
    body = select(is_number, (a - c.offset) >> c.drop, t ^ t)
    return body | (sign >> c.sign_shift), any_lane(rare), a & (((t ^ t) + 1 << c.drop) - 1)


def _decode_fast(code, c):
    """Carrier bits of the codes of zeros and normal numbers, and whether there are others."""
    body = code & c.body
    is_number = (code & (c.body | ~c.zero_sign)) != 0
    rare = is_number & ((body - c.first_normal) >= (c.special - c.first_normal))
    bits = select(is_number, (body << c.drop) + c.offset, body ^ body)
    return bits | ((code ^ body) << c.sign_shift), any_lane(rare)


@formula
def _step(what, source, i, target, k, is_held, c, bad):
    """One vector; `bad` gathers what is not held."""
    x = load_word(source, i, c.drop)
    if what == DECODE:
        bits, rare = _decode_fast(x, c)
        (bits,) = when(rare, lambda _: (_decode(x, c),), bits)
        store_low(target, k, bits)
        return bad
    none = bad ^ bad

    def slow(*_):
        code, held = _encode(x, c)
        return code, select(held, none, none + 1)

    code, rare, lost = _encode_fast(x, c)
    code, lost = when(rare, slow, code, lost)
    store_low(target, k, code)
    if what == CHECK:
        store_low(is_held, i, select(lost == 0, none + 1, none))
    return bad | lost


@cache
def codec(what: int) -> Any:
    """The compiled loop.

    Call    bad = loop(source, target, is_held, constants): 1-D unsigned arrays; is_held uint8
            receives 1 where a value is held, if asked; the result tells whether one is not
    """
    WHAT = what

    @compiled
    def loop(source, target, is_held, constants):
        c = _spread(constants)
        bad = c.drop ^ c.drop
        lanes = 512 // width_of(bad)
        n = source.shape[0]
        whole = n // 16 * 16
        x, y, m = pointer(source), pointer(target), pointer(is_held)
        for i in range(0, whole, lanes):
            bad = _step(WHAT, x, i, y, i, m, c, bad)
        if whole < n:
            # The last few pass through a full vector; repetition finds nothing new.
            last_x, last_y, last_m = room(source, 16), room(target, 16), room(is_held, 16)
            copy_items(last_x, x, whole, n - 1, 16)
            for i in range(0, 16, lanes):
                bad = _step(WHAT, last_x, i, last_y, i, last_m, c, bad)
            for k in range(n - whole):
                copy_item(y, whole + k, last_y, k)
                if WHAT == CHECK:
                    copy_item(m, whole + k, last_m, k)
        return np.int64(or_lanes(bad) != 0)

    return loop
