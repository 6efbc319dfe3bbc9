"""Elements of blocks: numbers times the factor of their block, rounded and saturated, as codes.

To nearest even, and stochastically with few digits, one loop makes the codes. Other modes take the
way of every conversion: products, values of the format, codes.

Source    docs/semantics.md §1 to §3.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise.apply import apply
from fpsim.elementwise.codes import to_codes
from fpsim.elementwise.constants import LANES, plan
from fpsim.kernels.blocks.encode import (
    CLIPPED,
    FLAGS_EACH,
    FLUSHED,
    WORDS_GIVEN,
    WORDS_HALF,
    WORDS_NONE,
    WORDS_WHOLE,
    ElementRule,
    EncoderVariant,
    encoder,
    words_of_elements,
)
from fpsim.kernels.random.words import GROUP_HALF, NO_WORDS
from fpsim.kernels.rounding.rule import RoundingRule
from fpsim.records.blocks import Block
from fpsim.records.flags import Flags
from fpsim.records.rounding import RNE, SR, Rounding
from fpsim.records.settings import Settings
from fpsim.records.types import Words
from fpsim.state.draws import Draw
from fpsim.state.threads import run_blocks

__all__ = ["Elements", "encode_elements", "element_settings", "words_in_order"]

#: Elements below which a second thread costs more than it gives.
_SMALLEST = 1 << 17

_NO_FLAGS = np.zeros(1, np.uint8)


class Elements(NamedTuple):
    """Codes of elements (rows, columns), two in a byte where they have four bits; flags.

    flags           all together; 0 where they were not asked for.
    element_flags   `Flags` of each; None likewise.
    block_flags     of each row of a block: bits of `BlockFlags`; likewise.
    """

    codes: NDArray[np.uint8]
    flags: int
    element_flags: NDArray[np.uint8] | None
    block_flags: NDArray[np.uint8] | None


@lru_cache(maxsize=256)
def element_settings(block: Block, rounding: Rounding) -> Settings:
    """Elements saturate, also what is infinite; a NaN is one where the format has it."""
    return Settings(block.element, rounding, overflow="saturate", infinite_input="saturate")


@lru_cache(maxsize=256)
def _constants(settings: Settings) -> NDArray[np.uint32]:
    fmt, lane = settings.format, LANES[32]
    rule = RoundingRule(*plan("convert", settings, 32).constants.tolist())
    quantum = fmt.emin - fmt.precision + 1
    random = settings.random_bits if settings.rounding.stochastic else 0
    hidden = lane.digits - 1
    body = int(to_codes(np.float32(fmt.max), fmt))
    element = ElementRule(
        drop=lane.digits - fmt.precision,
        offset=(lane.bias + fmt.emin - 1) << (fmt.precision - 1),
        normal=lane.bits(fmt.smallest_normal),
        magic=lane.bits(math.ldexp(1.0, quantum + hidden)),
        per_quantum=lane.bits(math.ldexp(1.0, -quantum)),
        per_digit=lane.bits(math.ldexp(1.0, random - quantum)),
        largest=body,
        tiny=rule.tiny_pos,
        nan=int(to_codes(np.float32(np.nan), fmt)) if fmt.has_nan else body,
        nan_flags=0 if fmt.has_nan else int(Flags.INVALID),
        sign_shift=lane.width - fmt.bits,
        random=random,
    )
    return np.array(element, np.uint32)


def _is_fast(settings: Settings) -> bool:
    """Whether the loop knows the rounding, and the format one zero of either sign."""
    fmt, rounding = settings.format, settings.rounding
    if not fmt.has_negative_zero or fmt.carrier != np.float32:
        return False
    if rounding == RNE:
        return True
    if not isinstance(rounding, SR) or rounding.residual != "truncate":
        return False
    lost = LANES[32].digits - fmt.precision
    return settings.random_most == settings.random_bits <= lost


def words_in_order(draw: Draw, settings: Settings, size: int) -> Words:
    """R of the elements 0 … size - 1 of an operation, in the top bits of words."""
    if draw.words is not None:
        return draw.words << np.uint32(32 - settings.random_most)
    words = np.empty(-(-(size + draw.first % GROUP_HALF) // GROUP_HALF) * GROUP_HALF, np.uint32)
    begin = draw.first // GROUP_HALF * GROUP_HALF
    words_of_elements(words, begin, draw.seed, draw.number, settings.random_most > 16)
    return words[draw.first - begin :][:size]


def encode_elements(
    x: NDArray[np.float32], factors: NDArray[np.float32], block: Block, rounding: Rounding,
    draw: Draw, words: Words | None, width: int, tall: int, *, flags: int,
) -> Elements:
    """Codes of x (rows, columns) with the factors (rows / tall, columns / width) of its blocks.

    words   R of each element, in the top bits; None: made by the loop from `draw`.
    width   elements of a block along a row, a multiple of 16.
    flags   which are told: `FLAGS_NONE`, `FLAGS_STICKY` or `FLAGS_EACH`.
    """
    settings = element_settings(block, rounding)
    if not _is_fast(settings):
        return _over_values(x, factors, block, settings, draw, words, width, tall, flags=flags)
    rows, columns = x.shape
    if tall == 1:  # blocks one after the other, which threads can share however long rows are
        rows, columns = x.size // max(width, 1), width
    by_element = flags == FLAGS_EACH
    codes = np.empty(x.size // 2 if block.packed else x.size, np.uint8)
    element_flags = np.empty(x.size, np.uint8) if by_element else _NO_FLAGS
    block_flags = np.empty(x.size // max(width, 1), np.uint8) if by_element else _NO_FLAGS
    source = WORDS_NONE
    if rounding.stochastic:
        source = WORDS_WHOLE if settings.random_most > 16 else WORDS_HALF
        source = source if words is None else WORDS_GIVEN
    loop = encoder(EncoderVariant(rounding.stochastic, source, flags, block.packed, block.integers))
    flat, scale = x.reshape(-1).view(np.uint32), factors.reshape(-1).view(np.uint32)
    flat_words = NO_WORDS if words is None else words.reshape(-1)

    def work(begin: int, end: int) -> int:
        raised: int = loop(
            flat, scale, codes, element_flags, block_flags, flat_words, _constants(settings),
            (begin, end, columns, width, tall), draw.first, draw.seed, draw.number,
        )
        return raised

    raised = 0
    if x.size:
        raised = run_blocks(work, 0, rows, max(1, _SMALLEST // columns), tall)
    shape = (x.shape[0], x.shape[1] // 2 if block.packed else x.shape[1])
    if not by_element:
        return Elements(codes.reshape(shape), raised, None, None)
    return Elements(
        codes.reshape(shape), raised, element_flags.reshape(x.shape),
        block_flags.reshape(x.shape[0], x.shape[1] // width),
    )


def _over_values(
    x: NDArray[np.float32], factors: NDArray[np.float32], block: Block, settings: Settings,
    draw: Draw, words: Words | None, width: int, tall: int, *, flags: int,
) -> Elements:
    """The same by products, values of the format, and codes: any rounding."""
    by_row = np.repeat(factors, tall, axis=0)[: x.shape[0]]
    with np.errstate(all="ignore"):
        products = (x.reshape(*by_row.shape, width) * by_row[..., None]).reshape(x.shape)
    if words is not None:
        draw = draw._replace(words=words.reshape(-1) >> np.uint32(32 - settings.random_most))
    element_flags = np.zeros(x.shape, np.uint8)
    values, raised = apply(
        "convert", (products,), settings, element_flags=element_flags, bits=draw
    )
    codes: NDArray[Any] = to_codes(values, block.element)
    if block.integers:
        magnitudes = (codes & 0x7F).astype(np.int8)
        turned = np.where(codes & 0x80, -magnitudes, magnitudes)
        codes = turned.astype(np.uint8)
    if block.packed:
        codes = codes[:, ::2] | codes[:, 1::2] << 4
    if flags != FLAGS_EACH:
        return Elements(codes, raised, None, None)
    told = np.where(element_flags & Flags.OVERFLOW, CLIPPED, 0)
    told |= np.where((values == 0) & (x != 0), FLUSHED, 0)
    of_blocks = np.bitwise_or.reduce(told.reshape(*by_row.shape, width), axis=-1)
    return Elements(codes, raised, element_flags, of_blocks.astype(np.uint8))
