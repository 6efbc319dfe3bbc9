"""All operands of 16-bit formats against the definition (exhaustive), and faults it must see.

Quick tier: every STRIDE-th second operand, one or two modes per operation. Full tier: a smaller
stride, all modes. Deep tier: the whole table, all 2**32 pairs per operation and mode.
"""

from __future__ import annotations

import numpy as np
import pytest

import fpsim.judge.verify.exhaustive as exhaustive
from fpsim.elementwise.codes import from_codes
from fpsim.judge.verify.definition import MODES
from ipu.experiments.cli import main
from tests.tiers import pick, reaches

STRIDE = pick(4093, 257, 1)
QUICK = {
    "add": ["RNE", "RTN"], "subtract": ["RTP"], "multiply": ["RNE", "RAZ"], "divide": ["RTO"],
    "sqrt": ["RNA"], "round_to_integral": ["RNZ"], "convert": ["RNE", "RTZ"],
}
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
