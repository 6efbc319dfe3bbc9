"""TestFloat's vectors, every function and mode recorded: values and flags (differential, golden).

The quick tier thins long files to every STRIDE-th line; the full tier reads all lines.
"""

from __future__ import annotations

import gzip
import io
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fpsim.context import Context
from fpsim.judge import oracle
from fpsim.judge.verify import testfloat
from fpsim.records.flags import Flags
from fpsim.records.formats import BINARY32
from fpsim.records.rounding import find_rounding
from ipu.experiments.cli import main
from tests.tiers import pick, reaches
from tests.vectors import TESTFLOAT, recorded_lines

#: Prime, so that a stride meets every kind of operand; files of up to 2000 lines are read whole.
STRIDE = pick(97, 1, 1)
LONG = 20_000  # bytes of a compressed file
#: In the quick tier every function to nearest, and the other modes with these.
EVERY_MODE = ("f16_add", "f32_to_f16", "f16_roundToInt", "f16_to_i32")
RECORDED = [
    (function, mode)
    for function, modes in TESTFLOAT.items()
    for mode in modes
    if reaches("full") or mode == "near_even" or function in EVERY_MODE
]


def check(function: str, rounding: str, nan: str) -> testfloat.Report:
    path = recorded_lines(function, rounding)
    stride = STRIDE if path.stat().st_size > LONG else 1
    with path.open("rb") as stream:
        return testfloat.verify(function, rounding, [(path.name, stream)], nan=nan, stride=stride)


def run(function: str, text: str, rounding: str = "near_even", **choices: str) -> testfloat.Report:
    stream = io.BytesIO(text.encode())
    return testfloat.verify(function, rounding, [("given", stream)], **choices)


@pytest.mark.vectors
@pytest.mark.source("Berkeley TestFloat 3e, level 1, seed 1")
@pytest.mark.parametrize(("function", "mode"), RECORDED)
def test_every_recorded_vector_agrees(function, mode):
    for nan in ("class", "x86"):
        if nan == "x86" and function in testfloat.SHIFTED_PAYLOADS:
            continue
        report = check(function, mode, nan)
        assert report.checked > 100
        assert report.mismatches == 0, "\n".join([str(report), *report.failures])


# Functions and modes that are not recorded: lines that the fraction oracle writes ---------------

EDGES = {
    "f16": [0, 1, 0x3FF, 0x400, 0x3800, 0x3BFF, 0x3C00, 0x3E01, 0x6400, 0x7BFF, 0x7C00, 0x7D01,
            0x7E00],
    "bf16": [0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7FA1, 0x7FC0],
    "f32": [0, 1, 0x7FFFFF, 0x387FF000, 0x33000001, 0x3F000000, 0x3F7FFFFF, 0x3FC00001, 0x4B7FFFFF,
            0x4F000000, 0x477FF000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000],
    "f64": [0, 1, 0x36A0000000000000, 0x36A0000000000001, 0x3E70000000000001, 0x3FF0020000000001,
            0x40EFFE0000000000, 0x47EFFFFFEFFFFFFF, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000001],
    "i32": [0, 1, 2047, 2049, 65519, 65520, 2**24 + 1, 2**31 - 1],
    "i64": [0, 1, 2049, 65519, 2**53 + 1, 2**62 + 2**38 + 1, 2**63 - 1],
}
EDGES["ui32"], EDGES["ui64"] = EDGES["i32"], EDGES["i64"]


def operands(function: testfloat.Function) -> list[tuple[int, ...]]:
    """Edge codes of both signs against each other, those of fma thinned."""
    kind = function.operands[0]
    top = 1 << (4 * testfloat.DIGITS[kind] - 1)
    codes = [*EDGES[kind], *(code ^ top for code in EDGES[kind])]
    return list(product(codes, repeat=len(function.operands)))[:: {1: 1, 2: 5, 3: 197}[
        len(function.operands)
    ]]


def answer(function: testfloat.Function, codes: tuple[int, ...], s: oracle.OracleSettings) -> tuple:
    """Result code and flags as fractions have them."""
    kind, fmt = function.operands[0], testfloat.FLOATS.get(function.operands[0])
    target = testfloat.FLOATS.get(function.result)
    if function.operation in testfloat.COMPARISONS:
        relation, signalling = testfloat.COMPARISONS[function.operation]
        return oracle.operate(relation + "_signalling" * signalling, codes, fmt, s)
    if kind in testfloat.INTEGERS:
        digits = 4 * testfloat.DIGITS[kind]
        negative = kind[0] == "i" and codes[0] >> (digits - 1)
        return oracle.from_integer(codes[0] - (negative << digits), target, s)
    if function.result in testfloat.INTEGERS:
        n, flags = oracle.to_integer(codes[0], fmt, function.result, s)
        return n % (1 << 4 * testfloat.DIGITS[function.result]), flags
    if function.operation == "convert":
        return oracle.convert(codes[0], fmt, target, s)
    return oracle.operate(testfloat.ARITHMETIC[function.operation][0], codes, fmt, s)


@pytest.mark.parametrize("name", testfloat.FUNCTIONS)
def test_lines_of_the_oracle_agree(name):
    function = testfloat.FUNCTIONS[name]
    turn = list(testfloat.FUNCTIONS).index(name)
    modes = list(testfloat.ROUNDINGS) if reaches("full") else ["near_even"]
    if not reaches("full") and turn % 4 == 0:
        modes.append(["near_maxMag", "odd"][turn // 4 % 2])
    for mode in modes:
        lines = []
        choices = oracle.OracleSettings(find_rounding(testfloat.ROUNDINGS[mode]), nan="x86")
        for codes in operands(function):
            result, flags = answer(function, codes, choices)
            fields = zip((*codes, result, int(flags)), function.widths, strict=True)
            lines.append(" ".join(f"{field:0{width}X}" for field, width in fields))
        nan = "class" if name in testfloat.SHIFTED_PAYLOADS else "x86"
        report = run(name, "\n".join(lines), mode, nan=nan)
        assert report.checked == len(lines)
        assert report.mismatches == 0, "\n".join([str(report), *report.failures])


# What must be seen to fail ---------------------------------------------------------------------

RIGHT = {
    "f16_add": ["87FF E850 E850 01", "3C00 7D00 FF00 10", "7C00 FC00 7E00 10"],
    "f32_rem": ["3F800000 00000000 FFC00000 10", "40A00000 40400000 BF800000 00"],
    "f16_mulAdd": ["3C00 3C00 BC00 0000 00"],
    "f16_eq": ["3C00 3C00 1 00", "7E00 3C00 0 00"],
    "f16_lt": ["7E00 3C00 0 10"],
    "f16_lt_quiet": ["7E00 3C00 0 00"],
    "f32_eq_signaling": ["7FC00000 3F800000 0 10"],
    "f32_to_i32": ["CF000000 80000000 00", "4F000000 80000000 10", "BF000000 00000000 01"],
    "f32_to_ui32": ["BF800000 FFFFFFFF 10", "7F800001 FFFFFFFF 10"],
    "f16_to_ui64": ["7BFF 000000000000FFE0 00"],
    "f16_to_i64": ["FBFF FFFFFFFFFFFF0020 00"],
    "ui64_to_f32": ["FFFFFFFFFFFFFFFF 5F800000 01", "8000008000000001 5F000001 01"],
    "i64_to_f16": ["FFFFFFFFFFFFFFFF BC00 00"],
    "i32_to_f16": ["0001FFFF 7C00 05"],
    "f64_to_f16": ["3FF0020000000001 3C01 01"],
    "bf16_to_f32": ["86E3 86E30000 00"],
}


@pytest.mark.parametrize("function", RIGHT)
def test_lines_by_hand_agree_and_broken_ones_do_not(function):
    for line in RIGHT[function]:
        assert run(function, line + "\n").mismatches == 0, line
        *operands, result, flags = line.split()
        other = f"{int(result, 16) ^ 1:0{len(result)}X}"
        is_nan = function[:4] in ("f16_", "f32_") and result in ("7E00", "FF00", "FFC00000")
        assert run(function, " ".join([*operands, other, flags])).mismatches == (not is_nan)
        assert run(function, " ".join([*operands, result, f"{int(flags, 16) ^ 2:02X}"])).mismatches


def test_odd_jams_to_odd_also_where_it_rounds_to_an_integer():
    # testfloat_gen's help says it truncates; what it does is this.
    assert run("f16_roundToInt", "87FF BC00 01", "odd").mismatches == 0
    assert run("f16_to_i32", "87FF FFFFFFFF 01", "odd").mismatches == 0


def test_tininess_is_a_choice():
    # 2**-14 - 2**-26 rounds up to the smallest normal: tiny before, not after.
    assert run("f32_to_f16", "387FF000 0400 01").mismatches == 0
    assert run("f32_to_f16", "387FF000 0400 03", tininess="before").mismatches == 0
    assert run("f32_to_f16", "387FF000 0400 03").mismatches == 1


def test_payloads_count_if_asked():
    assert run("f16_add", "3C00 7D01 7F01 10", nan="x86").mismatches == 0
    assert run("f16_add", "3C00 7D01 7E00 10", nan="x86").mismatches == 1
    assert run("f16_add", "3C00 7D01 FFFF 10").mismatches == 0
    with pytest.raises(ValueError, match="shifted by one bit"):
        run("f32_to_bf16", "3F800000 3F80 00", nan="x86")


def test_signalling_operands_of_exact_operations_warn_nobody():
    context = Context(BINARY32)
    x = context.wrap(np.array([0x7F800001], np.uint32).view(np.float32))
    context.ieee_remainder(x, 3.0)
    assert context.to_integers(x, "int64")[0] == -(2**63)
    assert context.flags == Flags.INVALID


# Reading -----------------------------------------------------------------------------------------

ADD = "3C00 3C00 4000 00\n"

MALFORMED = {
    "a digit short": ADD + "3C00 3C0 4000 00\n",
    "a digit more": ADD + "3C00 3C000 4000 00\n",
    "no digit": ADD + "3C00 3C0G 4000 00\n",
    "a field short": ADD + "3C00 3C00 00\n",
    "a field more": ADD + "3C00 3C00 4000 00 00\n",
    "empty": ADD + "\n" + ADD,
    "cut short": ADD + "3C00 3C00 40",
    "two spaces": ADD + "3C00  3C00 4000 00\n",
    "not text": ADD + "\xff\xfe\n",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_line_is_named(text):
    with pytest.raises(ValueError, match=r"given, line 2: .* is no vector of f16_add; expected"):
        run("f16_add", text)


def test_lines_may_end_as_on_windows_and_the_last_may_not_end():
    assert run("f16_add", ADD.replace("\n", "\r\n") + ADD.lower().rstrip()).checked == 2


def test_blocks_do_not_split_lines(monkeypatch):
    monkeypatch.setattr("fpsim.judge.verify.lines.BLOCK", 50)
    text = "".join(f"{k:04X} 0000 {k:04X} 00\n" for k in range(1, 0x400))
    report = run("f16_add", text.replace("03E8 00\n", "03E9 00\n"))
    assert (report.checked, report.mismatches) == (0x3FF, 1)
    assert "line 1000: operands 03E8 0000  got 03E8 00  expected 03E9 00" in report.failures[0]
    assert run("f16_add", text, rounding="max").mismatches == 0


def test_a_line_without_end_is_refused_before_it_fills_the_memory(monkeypatch):
    monkeypatch.setattr("fpsim.judge.verify.lines.BLOCK", 50)
    with pytest.raises(ValueError, match="line 1:"):
        run("f16_add", "0" * 10_000)


def test_every_stride_is_a_part_of_all_lines(monkeypatch):
    monkeypatch.setattr("fpsim.judge.verify.lines.BLOCK", 50)
    text = "".join(f"{k:04X} 0000 0000 00\n" for k in range(1, 101))
    result = run("f16_add", text, stride=7)
    assert result.checked == 15
    assert [f.split(":")[0] for f in result.failures[:3]] == [
        f"  given, line {n}" for n in (1, 8, 15)
    ]


# The command -------------------------------------------------------------------------------------


def test_the_command_reads_files_and_says_what_it_found(tmp_path, capsys):
    good, bad = tmp_path / "good.txt", tmp_path / "bad.txt.gz"
    good.write_text(ADD)
    bad.write_bytes(gzip.compress(("3C00 3C00 4001 00\n" * 12).encode()))
    assert main(["verify", "testfloat", "f16_add", str(good)]) == 0
    assert capsys.readouterr().out == "f16_add near_even: 1 vectors, 0 mismatches\n"
    assert main(["verify", "testfloat", "f16_add", str(good), str(bad), "--rounding", "max"]) == 1
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "f16_add max: 13 vectors, 12 mismatches"
    assert len(lines) == 10
    assert lines[0].endswith(
        "bad.txt.gz, line 1: operands 3C00 3C00  got 4000 00  expected 4001 00"
    )


BAD = {
    "testfloat f16_ad": "Did you mean 'f16_add'",
    "testfloat f16_add --rounding up": "rounding='up' is not known; use one of near_even",
    "testfloat f16_add missing.txt": "file='missing.txt' cannot be read",
    "testfloat bf16_to_f32 --nan x86 missing.txt": "shifted by one bit",
    "testfloat f16_add empty.txt": "empty.txt holds no vectors",
    "testfloat f16_add cut.gz": "cut.gz cannot be read",
    "testfloat f16_add broken.txt": "broken.txt, line 1: 'what' is no vector of f16_add",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_and_status_two(line, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty.txt").touch()
    Path("cut.gz").write_bytes(gzip.compress(ADD.encode())[:-9])
    Path("broken.txt").write_text("what\n")
    assert main(["verify", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert BAD[line] in err
    assert err.count("\n") == 1
