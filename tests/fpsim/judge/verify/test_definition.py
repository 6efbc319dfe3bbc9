"""The judge takes the oracle's answers and refuses every other value and flag (differential)."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import product

import numpy as np
import pytest

import fpsim.judge.verify.exhaustive as exhaustive
from fpsim.elementwise.codes import from_codes
from fpsim.judge import oracle
from fpsim.judge.verify.definition import MODES, judge, table_of
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY16, E2M3FN, E4M3FN, F143, Format
from fpsim.records.rounding import find_rounding
from fpsim.records.settings import Settings
from tests.tiers import pick

EDGES = [
    0,
    1,
    2,
    0x3FF,
    0x400,
    0x401,
    0x3BFF,
    0x3C00,
    0x3C01,
    0x5800,
    0x7BFF,
    0x7C00,
    0x7D01,
    0x7E00,
]


@lru_cache
def operand_codes(operation: str) -> tuple[np.ndarray, np.ndarray]:
    """Edges against edges, then pairs at random: with signs, many near cancellation."""
    rng = np.random.default_rng(7)
    edges = np.array([*EDGES, *(e | 0x8000 for e in EDGES)])
    n = pick(100, 2000, 20_000)
    x, near = rng.integers(0, 1 << 16, n), rng.integers(-8, 9, n)
    y = np.where(rng.random(n) < 0.5, np.clip(x + near, 0, 0xFFFF), rng.integers(0, 1 << 16, n))
    a, b = (m.ravel() for m in np.meshgrid(edges, edges))
    if operation in ("sqrt", "convert"):  # y is x there
        a, b, y = edges, edges, x
    return np.concatenate([a, x]), np.concatenate([b, y])


def answers(operation: str, target: Format, settings: oracle.OracleSettings) -> tuple:
    """Operands, results and flags of the fraction oracle, as carriers."""
    x, y = operand_codes(operation)
    results = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if operation == "convert":
            results.append(oracle.convert(a, BINARY16, target, settings))
        else:
            operands = (a,) if operation == "sqrt" else (a, b)
            results.append(oracle.operate(operation, operands, target, settings))
    codes, flags = zip(*results, strict=True)
    got = from_codes(np.array(codes, np.uint64), target)
    return (from_codes(x, BINARY16), from_codes(y, BINARY16), got,
            np.array([int(f) for f in flags], np.uint8))


CASES = [
    *((operation, BINARY16) for operation in ("add", "subtract", "multiply", "divide", "sqrt")),
    *(("convert", target) for target in (E4M3FN, F143, E2M3FN)),
]


#: The judge's table knows modes alone: the quick tier has all of them with one operation, and
#: upwards products too: one of them is exact, and tiny, with an unbounded exponent alone.
EVERY = [(operation, target, mode) for operation, target in CASES for mode in MODES]
FEW = [
    case for case in EVERY
    if case[0] == "add" or case[2] == "RNE" or (case[0], case[2]) == ("multiply", "RTP")
]


@pytest.mark.parametrize(("operation", "target", "mode"), pick(FEW, EVERY, EVERY))
def test_the_judge_takes_the_oracle_and_nothing_else(operation, target, mode):
    for tininess in ("after", "before"):
        settings = Settings(target, find_rounding(mode), tininess=tininess)
        choices = oracle.OracleSettings(settings.rounding, tininess=tininess)
        x, y, got, flags = answers(operation, target, choices)
        grid = exhaustive.grid_of(target, settings, operation)
        check = judge(operation, mode, grid, tiny_before=tininess == "before")
        wrong = np.empty(x.shape, bool)

        def refused(values, raised, check=check, x=x, y=y, wrong=wrong):
            return check(x, y, values, raised, wrong) == wrong.sum() == x.size

        assert check(x, y, got, flags, wrong) == 0, (x[wrong][0], y[wrong][0], got[wrong][0])
        assert not wrong.any()
        for flag in Flags:
            assert refused(got, flags ^ np.uint8(flag))
        bits = got.view(np.uint32)
        step = np.uint32(1 << (24 - target.precision))
        for other in (bits + step, bits - step, bits + np.uint32(1), bits ^ np.uint32(1 << 31)):
            assert refused(other.view(np.float32), flags)


def test_the_table_of_a_mode_is_its_definition_at_each_index():
    for name in MODES:
        table = table_of(name)
        for negative, side, odd in product((False, True), (-1, 0, 1), (False, True)):
            up = table[6 * negative + 2 * (side + 1) + odd]
            # 2 + odd is the significand below: 2 is even, 3 is odd; the side is that of w - 1/2.
            w = Fraction(side + 2, 4)
            nearest = {"RNE": w == 1 / 2 and odd, "RNA": w == 1 / 2, "RNZ": False}
            directed = {"RTZ": False, "RTP": not negative, "RTN": negative, "RAZ": True,
                        "RTO": not odd}
            due = w > Fraction(1, 2) or nearest[name] if name in nearest else directed[name]
            assert up == due, (name, negative, side, odd)
