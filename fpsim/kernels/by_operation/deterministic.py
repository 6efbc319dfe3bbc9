"""Products rounded after every multiplication and addition by a deterministic mode.

Four rows by two vectors of columns stay in registers while their terms pass. The caller guarantees
finite operands and exact products (see `fpsim.products.by_operation.bounds`).

Source    docs/semantics.md §4.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from fpsim.kernels.by_operation.lane_rounding import (
    not_sum,
    round_cut_sum,
    round_product,
    round_sum,
    signed_like,
    split_number,
    split_product,
    spread_macs,
    with_odd,
)
from fpsim.kernels.by_operation.results import (
    ANYWHERE,
    GROUP,
    LOOK_FOR_ALL,
    LOOK_FOR_NONE,
    NOWHERE,
    ROWS,
    STRETCH,
    look,
    look_beyond,
    put_result,
    report,
)
from fpsim.kernels.by_operation.zeros import settle_zeros
from fpsim.kernels.compiling import compiled
from fpsim.kernels.lanes.arithmetic import floats_like, fused, plus
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load_float, load_raw, pointer, room, spread_like
from fpsim.kernels.lanes.tiles import keep
from fpsim.kernels.lanes.vectors import (
    any_lane,
    as_bits,
    as_float,
    infinity_like,
    lanes_of,
    sign_like,
    umax,
    width_of,
)
from fpsim.kernels.rounding.direction import raised, set_modes
from fpsim.kernels.rounding.modes import RNE
from fpsim.kernels.rounding.to_odd import sum_to_odd

__all__ = ["MacVariant", "mac_kernel"]


class MacVariant(NamedTuple):
    """What is compiled in."""

    mode: int
    direction: int
    fused: bool
    native: bool  # the lanes are the format: nothing is left to round
    small: bool  # products below the smallest normal number may occur
    checked: int  # where something may overflow
    beyond: int  # what that becomes
    watched: int  # which flags are looked for
    has_fma: bool
    calm: bool  # a stretch is not checked where its sums begin far from overflow
    large: bool  # a stretch whose products are all large has the short way of rounding them
    splits: bool  # sums to nearest even are rounded by splitting


def _separate(what, acc, x, y, rule, events):
    """acc = fl(acc + fl(x y)) but for the sign of zero, and the events so far."""
    small, mode, checked, held, watched, has_fma, splits = what
    y, wide = y
    product = x * y
    if wide is not None:
        p = split_product(x, y, wide, has_fma)
    else:
        p = (round_product if small else round_sum)(mode, product, rule, has_fma)
    if watched == LOOK_FOR_ALL:
        events = look(product, p, product != product, rule, events)
    if checked == ANYWHERE:
        p, events = look_beyond(held, watched, product, p, rule, events)
    total = acc + p
    if splits:
        result = split_number(total, rule)
    else:
        result = round_cut_sum(mode, total, acc, p, rule, has_fma)
    if watched == LOOK_FOR_ALL:
        events = look(total, result, not_sum(total, acc, p), rule, events)
    if checked:
        result, events = look_beyond(held, watched, total, result, rule, events)
    return result, events


def _fused(what, acc, x, y, rule, events):
    """acc = fl(acc + x y), and the events so far. A directed sum needs no odd digit."""
    _small, mode, checked, held, watched, has_fma, _splits = what
    product = x * y
    total = with_odd(mode, acc + product, acc, product)
    lost = total != total
    if mode == RNE:
        total = as_float(sum_to_odd(acc, product, width_of(total)))
    elif watched == LOOK_FOR_ALL:
        lost = not_sum(total, acc, product)
    result = signed_like(round_product(mode, total, rule, has_fma), total)
    if watched == LOOK_FOR_ALL:
        events = look(total, result, lost, rule, events)
    if checked:
        result, events = look_beyond(held, watched, total, result, rule, events)
    return result, events


def _term(what, acc, x, y, rule, events):
    chain, native = what[:2]
    if native:
        return (fused(x, y[0], acc) if chain else acc + x * y[0]), events
    if chain:
        return _fused(what[2:], acc, x, y[0], rule, events)
    return _separate(what[2:], acc, x, y, rule, events)


@formula
def _is_near(c, rule):
    """Whether one of eight vectors of sums may overflow within a stretch, or is no number."""
    top = rule.step ^ rule.step
    for acc in c:
        top = umax(top, as_bits(acc) & ~sign_like(top))
    return any_lane(top > rule.calm)


def _in_turn(c, items, columns, rule):
    """As `_separate` with small products, each step for all vectors before the next one.

    The steps of one vector wait for each other, and a processor looks only so far ahead.
    """
    lift, sink = as_float(rule.lift), as_float(rule.lift | sign_like(rule.lift))
    products = [items[i // 2] * columns[i % 2][0] for i in range(len(c))]
    fields = [as_bits(product) & infinity_like(rule.floor) for product in products]
    units = [as_float(umax(field, rule.floor)) for field in fields]
    moved = [fused(unit, lift, product) for unit, product in zip(units, products, strict=True)]
    rounded = [fused(unit, sink, product) for unit, product in zip(units, moved, strict=True)]
    totals = [acc + product for acc, product in zip(c, rounded, strict=True)]
    wide = [total * as_float(rule.split) for total in totals]
    parts = [number - total for number, total in zip(wide, totals, strict=True)]
    return tuple(number - part for number, part in zip(wide, parts, strict=True))


@formula
def _terms(what, c, a, x, t, b, j, rule, events):
    """Term t of eight vectors: rows from x on in a, two vectors of columns from j on in b."""
    small, _mode, checked, _beyond, watched, has_fma, splits = what[2:]
    u = load_float(b, j, rule.step)
    v = load_float(b, plus(j, lanes_of(u)), rule.step)
    items = [floats_like(spread_like(a, plus(row, t), u), u) for row in x]
    plain = splits and checked == NOWHERE and watched != LOOK_FOR_ALL
    if plain and small and has_fma and lanes_of(u) * width_of(u) == 256:
        return _in_turn(c, items, ((u, None), (v, None)), rule), events
    apart = splits and not small and checked != ANYWHERE and watched != LOOK_FOR_ALL
    columns = [(y, y * as_float(rule.split) if apart else None) for y in (u, v)]
    sums = []
    for i, acc in enumerate(c):
        acc, events = _term(what, acc, items[i // 2], columns[i % 2], rule, events)
        sums.append(acc)
    return tuple(sums), events


@formula
def _results(tile, c, checked, rule):
    """Eight vectors of results; the largest magnitude of each lane."""
    top = rule.step ^ rule.step
    for i, acc in enumerate(c):
        top = umax(top, put_result(tile, i * lanes_of(top), acc, checked, rule))
    return top


@cache
def mac_kernel(variant: MacVariant) -> Any:
    """The compiled product.

    Call    flags = loop(a, b, out, constants, left, right): a (M, K), b (panels, K, two vectors),
            out (M, N), constants as `spread_macs` reads them, all of one width; flags as `results`
            numbers them, and where `native` those of `raised` << 8. Numbers of 16 bits are handed
            over as codes, those of a twice in 32 bits, and come back in binary32.
            Where `large`: left (blocks of ROWS, stretches) and right (panels, stretches) binary64;
            where left * right is at least 1, no product of theirs is small.
    """
    MODE, DIRECTION, FUSED, NATIVE, SMALL, CHECKED, BEYOND, WATCHED, FMA = variant[:9]
    CALM, LARGE, SPLITS = variant[9:]
    EASY, UNSIGNED, SHORT = CALM or LARGE, not FUSED and not NATIVE, SMALL and not LARGE
    KEPT, REST = (NOWHERE, LOOK_FOR_NONE) if CALM else (CHECKED, WATCHED)

    @compiled
    def loop(a, b, out, constants, left, right):
        rule = spread_macs(constants)
        none = rule.step ^ rule.step
        rows, columns = out.shape
        depth, wide = b.shape[1], b.shape[2]
        pa, pb, po = pointer(a.reshape(-1)), pointer(b.reshape(-1)), pointer(out.reshape(-1))
        tile = room(out, 256)
        what = (FUSED, NATIVE, SMALL, MODE, CHECKED, BEYOND, WATCHED, FMA, SPLITS)
        easy = (FUSED, NATIVE, SHORT, MODE, KEPT, BEYOND, REST, FMA, SPLITS)
        held, never = load_raw(tile, 0, none), none != none
        events, top = (never, never, none), none
        start, blocks = as_float(rule.start), (rows + ROWS - 1) // ROWS
        group = max(1, GROUP // (depth * ROWS))
        set_modes(DIRECTION)
        for turn in range((blocks + group - 1) // group * b.shape[0]):
            panel, begin = turn % b.shape[0], turn // b.shape[0] * group
            for block in range(begin, min(begin + group, blocks)):
                i, last = block * ROWS, rows - 1
                x = i, min(i + 1, last), min(i + 2, last), min(i + 3, last)
                x = x[0] * depth, x[1] * depth, x[2] * depth, x[3] * depth
                j = panel * depth * wide
                c = (start, start, start, start, start, start, start, start)
                for k in range(0, depth, STRETCH if EASY else depth):
                    end = min(k + STRETCH, depth) if EASY else depth
                    plain = EASY
                    if LARGE:
                        plain = left[block, k // STRETCH] * right[panel, k // STRETCH] >= 1
                    if CALM:
                        plain = plain and not _is_near(c, rule)
                    if EASY and plain:
                        for t in range(k, end):
                            c, events = _terms(easy, c, pa, x, t, pb, j + t * wide, rule, events)
                        continue
                    for t in range(k, end):
                        c, events = _terms(what, c, pa, x, t, pb, j + t * wide, rule, events)
                if UNSIGNED:
                    c = settle_zeros(c, pa, x, pb, j, depth, wide, rule.start)
                top = umax(top, _results(tile, c, CHECKED or NATIVE, rule))
                m, n = min(ROWS, rows - i), min(wide, columns - panel * wide)
                keep(po, tile, i * columns + panel * wide, columns, m, n, wide, held)
        return (raised() << 8) + report(events, top, rule)

    return loop
