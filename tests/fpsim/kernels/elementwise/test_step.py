"""One vector of an elementwise operation: what is rare in it, lane by lane (differential)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.apply import apply
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge.oracle import convert, elementwise_word, operate
from fpsim.judge.oracle.rounding import OracleSettings
from fpsim.records.settings import Settings
from fpsim.state.draws import Draw
from tests.fpsim.kernels.elementwise.test_loop import HALF, run

#: Infinity, a signalling NaN, the largest number and ones whose sums and products overflow.
RARE = [0x7C00, 0xFC00, 0x7D01, 0x7BFF, 0xFBFF, 0x7800]


@pytest.mark.parametrize("rounding", [fp.RNE, fp.RTZ, fp.SR(13, subnormal_bits=16)], ids=str)
@pytest.mark.parametrize("operation", ["add", "subtract", "multiply"])
def test_a_rare_element_is_seen_in_every_lane(operation, rounding):
    """Beside exact ones: what raises flags is looked for in the results of a vector."""
    settings = Settings(HALF, rounding)
    for lane, at in enumerate((u, v) for u in RARE for v in (*RARE, 0x0000, 0x3555, 0x5BFF)):
        operands = [np.full(64, code, np.uint16) for code in (0x3C00, 0x4000)]
        for operand, code in zip(operands, at, strict=True):
            operand[lane] = code
        word = elementwise_word(3, 7, lane, 16)
        code, flags = operate(operation, at, HALF, OracleSettings(rounding, word=word))
        values = [from_codes(c, HALF) for c in operands]
        draw = Draw(np.uint64(3), np.uint64(7), None)
        out, raised = apply(operation, values, settings, bits=draw)
        assert (int(to_codes(out, HALF)[lane]), raised) == (code, int(flags)), at
        codes, element_flags = run(operation, operands, settings, bits=draw)
        outcome = int(codes[lane]), int(element_flags[lane]), element_flags.sum()
        assert outcome == (code, int(flags), int(flags)), at


@pytest.mark.parametrize("rounding", [fp.RNE, fp.RTP, fp.SR(13, subnormal_bits=16)], ids=str)
def test_a_conversion_tells_of_overflow_again_and_again(rounding):
    """It is looked for until it is found; infinities and NaN are looked at before and after it."""
    beyond = np.nextafter(np.float32(65504), np.float32(np.inf))  # upward, already too large
    rare = np.float32([np.inf, -np.inf, np.nan, 1e30, -65535.0, 65519.0, beyond])
    settings, draw = Settings(HALF, rounding), Draw(np.uint64(3), np.uint64(7), None)
    for first, second in ((u, v) for u in rare for v in rare):
        x = np.full(96, 2.0, np.float32)
        x[5], x[70] = first, second
        marks = np.zeros(96, np.uint8)
        values, flags = apply("convert", (x,), settings, element_flags=marks, bits=draw)
        again, sticky = apply("convert", (x,), settings, bits=draw)
        assert np.array_equal(to_codes(values, HALF), to_codes(again, HALF))
        for i in (5, 70):
            reference = OracleSettings(rounding, word=elementwise_word(3, 7, i, 16))
            code = int(x[i : i + 1].view(np.uint32)[0])
            expected, raised = convert(code, fp.BINARY32, HALF, reference)
            assert (int(to_codes(values, HALF)[i]), int(marks[i])) == (expected, int(raised)), x[i]
        assert flags == sticky == int(marks[5]) | int(marks[70]) == np.bitwise_or.reduce(marks)
