"""All operands of 16-bit formats against the definition (exhaustive), and the judge itself.

Quick tier: every STRIDE-th second operand, one or two modes per operation. Full tier: a smaller
stride, all modes. Deep tier: the whole table, all 2**32 pairs per operation and mode.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

import fpsim.judge.verify.exhaustive as exhaustive
from fpsim.elementwise.codes import from_codes
from fpsim.judge import oracle
from fpsim.judge.verify.definition import MODES, judge
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY16, E2M3FN, E4M3FN, F143, Format
from fpsim.records.rounding import find_rounding
from fpsim.records.settings import Settings
from ipu.experiments.cli import main
from tests.tiers import pick, reaches

STRIDE = pick(4093, 257, 1)
QUICK = {
    "add": ["RNE", "RTN"], "subtract": ["RTP"], "multiply": ["RNE", "RAZ"], "divide": ["RTO"],
    "sqrt": ["RNA"], "round_to_integral": ["RNZ"], "convert": ["RNE", "RTZ"],
}  # fmt: skip
TABLE = [
    (operation, mode)
    for operation in exhaustive.OPERATIONS
    for mode in (MODES if reaches("full") else QUICK[operation])
]


@pytest.mark.parametrize(("operation", "mode"), TABLE)
def test_every_result_is_the_neighbour_that_the_mode_names(operation, mode):
    for report in exhaustive.verify(operation, mode, stride=STRIDE):
        assert report.checked >= 1 << 16
        assert report.mismatches == 0, "\n".join([str(report), *report.failures])


@pytest.mark.parametrize("operation", QUICK)
def test_tininess_before_rounding(operation):
    (mode, *_), stride = QUICK[operation], pick(16381, 257, 1)
    for report in exhaustive.verify(operation, mode, tininess="before", stride=stride):
        assert report.mismatches == 0, "\n".join([str(report), *report.failures])


# The judge ---------------------------------------------------------------------------------------

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


def answers(operation: str, target: Format, settings: oracle.Settings) -> tuple:
    """Operands, results and flags of the fraction oracle, as carriers."""
    x, y = operand_codes(operation)
    found = []
    for a, b in zip(x.tolist(), y.tolist(), strict=True):
        if operation == "convert":
            found.append(oracle.convert(a, BINARY16, target, settings))
        else:
            operands = (a,) if operation == "sqrt" else (a, b)
            found.append(oracle.operate(operation, operands, target, settings))
    codes, flags = zip(*found, strict=True)
    got = from_codes(np.array(codes, np.uint64), target)
    return (from_codes(x, BINARY16), from_codes(y, BINARY16), got,
            np.array([int(f) for f in flags], np.uint8))  # fmt: skip


CASES = [
    *((operation, BINARY16) for operation in ("add", "subtract", "multiply", "divide", "sqrt")),
    *(("convert", target) for target in (E4M3FN, F143, E2M3FN)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("operation", "target"), CASES)
def test_the_judge_takes_the_oracle_and_nothing_else(operation, target, mode):
    for tininess in ("after", "before"):
        settings = Settings(target, find_rounding(mode), tininess=tininess)
        choices = oracle.Settings(settings.rounding, tininess=tininess)
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


def test_the_operands_are_those_of_the_core():
    for name in ("binary16", "bfloat16"):
        fmt = exhaustive.CATALOGUE[name]
        mine, ours = exhaustive.all_values(fmt), from_codes(np.arange(1 << 16), fmt)
        np.testing.assert_array_equal(mine.view(np.uint32), ours.view(np.uint32))


# What must be seen to fail ---------------------------------------------------------------------


def broken(monkeypatch, change):
    """Let the core give something else."""
    right = exhaustive.apply

    def apply(*arguments, element_flags=None, **rest):
        out, flags = right(*arguments, element_flags=element_flags, **rest)
        return out, change(out, element_flags, flags)

    monkeypatch.setattr(exhaustive, "apply", apply)


def test_one_wrong_value_is_found(monkeypatch, capsys):
    def change(out, marks, flags):
        out[0x3C00] = 3.0
        return flags

    broken(monkeypatch, change)
    assert main(["verify", "exhaustive", "multiply", "--stride", "65536"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "multiply RNE: 65536 results, 1 mismatches",
        "  operands 1.0 0.0  got 3.0 (40400000)  flags none",
    ]


def test_one_wrong_flag_is_found(monkeypatch):
    def change(out, marks, flags):
        if marks is not None:
            marks[7] ^= 2
        return flags

    broken(monkeypatch, change)
    (report,) = exhaustive.verify("add", "RNE", stride=65536)
    assert report.mismatches >= 1


def test_a_fast_path_that_differs_is_found(monkeypatch):
    broken(monkeypatch, lambda out, marks, flags: flags | 8 if marks is None else flags)
    (report,) = exhaustive.verify("add", "RNE", stride=65536)
    assert report.failures == ["  add with 0.0: the path without element flags differs"]


def test_the_command(capsys):
    assert main(["verify", "exhaustive", "sqrt", "--rounding", "RNE,RNA"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sqrt binary16 RNE: 65536 results, 0 mismatches"
    assert lines[3] == "sqrt bfloat16 RNA: 65536 results, 0 mismatches"
    for bad in (["ad"], ["add", "--rounding", "RNE,up"], ["add", "--stride", "0"]):
        assert main(["verify", "exhaustive", *bad]) == 2
