"""fpsim show: one number or one code, taken apart in some formats."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

import click

from ipu.experiments.commands.options import bad_input, read_formats_or_blocks

if TYPE_CHECKING:
    from fpsim.records.blocks import Block
    from fpsim.records.formats import Format
    from fpsim.records.rounding import Rounding

#: Numbers that are no fractions.
BY_NAME = ("inf", "infinity", "nan", "0", "0.0")
#: What may be asked for.
ALLOWED = "give a number (0.1, 1/3, 0x1.8p-1, inf, nan) or a code (0x3c00, 0b0011110000000000)"


@click.command("show", context_settings={"ignore_unknown_options": True})
@click.argument("numbers", nargs=-1, required=True, metavar="NUMBER|0xCODE...")
@click.option("--format", "formats", default="binary16", show_default=True, metavar="NAME,...",
              help="Formats to look in; see: fpsim list formats. Numbers in a block-scaled one "
                   "are one block.")
@click.option("--rounding", default="RNE", show_default=True, metavar="MODE",
              help="How a number becomes a value of the format.")
def command(numbers: tuple[str, ...], formats: str, rounding: str) -> None:
    """Sign, exponent, significand, value and neighbours; for a number also the chance to go up.

    0x3c00 and 0b0011110000000000 are codes; 0.1, 1/3, 0x1.8p-1, inf and nan are numbers.
    """
    with bad_input():
        from fpsim.records.blocks import Block
        from fpsim.records.rounding import find_rounding

        mode, listed = find_rounding(rounding), read_formats_or_blocks(formats)
        lines = [
            line
            for number in numbers
            for fmt in listed
            if not isinstance(fmt, Block)
            for line in [*show(number, fmt, mode), ""]
        ]
        for block in listed:
            if isinstance(block, Block):
                lines += [*show_block(numbers, block, mode), ""]
    click.echo("\n".join(lines[:-1]))


def show(number: str, fmt: Format, rounding: Rounding) -> Iterator[str]:
    """The lines about one number or code in one format."""
    from fpsim.convenience import encode

    yield f"{number} in {fmt.name}"
    if _is_code(number):
        yield from _code(_bits(number), fmt)
    elif number.lower().lstrip("+-") in BY_NAME:
        yield from _code(encode(float(number), fmt, rounding), fmt)
    else:
        yield from _real(number, fmt, rounding)


def show_block(numbers: tuple[str, ...], block: Block, rounding: Rounding) -> Iterator[str]:
    """The lines about numbers as one block: its scale, and what each becomes."""
    import numpy as np

    from fpsim.inspect.blocks import filled, signal_to_noise
    from fpsim.quantizers import quantize

    exact = [_number(number) for number in numbers]
    x = np.array(exact, np.float32)
    if block.elements is not None and len(x) > block.elements:
        raise ValueError(f"{len(x)} numbers, and a block of {block} has {block.elements}")
    q = quantize(filled(x, block), block, rounding=rounding)
    values, codes = q.values.reshape(-1), q.element_values.reshape(-1)
    yield f"one block of {block.name}: {block.element} under {block.scale}, {block.scale_rule}"
    stored = q.scales.reshape(-1)[0]
    code = f", code {int(stored):#04x}" if stored.dtype == np.uint8 else ""
    yield _line("scale", f"{float(q.scale_values.reshape(-1)[0])!r}{code}")
    if block.tensor_scale is not None:
        yield _line("tensor's scale", f"{q.tensor_scale!r}, amax {q.tensor_amax!r}")
    for number, x_, element, value in zip(numbers, x, codes, values, strict=False):
        error = f", error {value / float(x_) - 1:+.3%}" if x_ and math.isfinite(value) else ""
        yield _line(number, f"element {float(element)!r}, value {float(value)!r}{error}")
    sqnr, gain = signal_to_noise(values[: len(x)], x)
    yield _line("together", f"signal to noise {sqnr:.2f} dB, gain {gain:.4f}")


def _number(number: str) -> float:
    if _is_code(number):
        raise ValueError(f"number={number!r} is a code; a block takes numbers")
    if number.lower().lstrip("+-") in BY_NAME:
        return float(number)
    return float(_exact(number))


def _is_code(number: str) -> bool:
    digits = number.lower()
    return digits.startswith("0b") or (digits.startswith("0x") and not {".", "p"} & set(digits))


def _bits(number: str) -> int:
    try:
        return int(number, 0)
    except ValueError:
        raise ValueError(f"number={number!r} is no code; {ALLOWED}") from None


def _exact(number: str) -> Fraction:
    from fpsim.inspect.probe import real

    try:
        return real(number)
    except ValueError:
        raise ValueError(f"number={number!r} is no number; {ALLOWED}") from None


def _real(number: str, fmt: Format, rounding: Rounding) -> Iterator[str]:
    from fpsim.context import Context
    from fpsim.convenience import decode
    from fpsim.inspect.probe import neighbours, probability_up
    from fpsim.records.rounding import SR

    exact = _exact(number)
    # A fraction has no sign of zero.
    text = str(exact) if exact or not number.startswith("-") else "-0"
    code = int(Context(fmt, rounding=rounding).decimal(text).codes())
    yield from _code(code, fmt)
    yield from _error(exact, decode(code, fmt), fmt)
    below, above = neighbours(exact, fmt)
    yield _line("lies between", f"{_value(below)} and {_value(above)}")
    if abs(exact) >= Fraction(fmt.max) + Fraction(fmt.ulp(fmt.max)):
        return
    modes = (rounding, SR()) if fmt.sr_bits_max > 0 else (rounding,)
    for mode in dict.fromkeys(modes):
        chance = float(probability_up(exact, fmt, mode))
        yield _line(f"{mode!r} goes up", f"with probability {chance:.6g}")


def _code(code: int, fmt: Format) -> Iterator[str]:
    from fpsim.inspect.probe import fields, neighbours

    f = fields(code, fmt)
    yield _line("value", f"{f.value!r}  ({f.kind})")
    yield _line("code", f"{code:#0{2 - -fmt.bits // 4}x}  {f.pattern}  (sign exponent fraction)")
    if f.exponent is None:
        return
    sign = "-" if f.sign else "+"
    yield _line("reads", f"{sign} {f.significand}/{1 << fmt.nmant} * 2^{f.exponent}")
    yield _line("ulp", f"{f.ulp!r}")
    below, above = neighbours(f.value, fmt)
    yield _line("neighbours", f"{_value(below)} and {_value(above)}")


def _error(exact: Fraction, value: float, fmt: Format) -> Iterator[str]:
    if not exact or not math.isfinite(value):
        return
    error = Fraction(value) - exact
    if not error:
        yield _line("error", "none")
        return
    ulps = error / Fraction(fmt.ulp(value))
    if max(abs(error), abs(ulps)) > sys.float_info.max:
        yield _line("error", "beyond binary64")
        return
    size = f"{float(error):+.6g}" if float(error) else "below 1e-323 in size"
    yield _line("error", f"{size}, {float(ulps):+.4f} ulp, {float(error / exact):+.4%}")


def _value(x: float | None) -> str:
    return "none" if x is None else repr(x)


def _line(name: str, text: str) -> str:
    return f"  {name:<14} {text}"
