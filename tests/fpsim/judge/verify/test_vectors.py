"""Vectors for hardware: each row again through the core (differential), forms (golden)."""

from __future__ import annotations

import shutil
import subprocess

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.apply import apply
from fpsim.elementwise.blocks.quantise import quantise
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge.verify.block_vectors import of_block
from fpsim.judge.verify.vectors import (
    COUNTEREXAMPLES,
    FORMS,
    OPERANDS,
    Vectors,
    of_format,
    of_unit,
    written,
)
from fpsim.kernels.blocks.encode import FLAGS_NONE
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.records.blocks import BLOCKS
from fpsim.records.formats import BINARY32, CATALOGUE, Format
from fpsim.records.units import MatrixUnit
from fpsim.state.draws import NO_DRAW, Draw
from tests.tiers import pick

UNIT = MatrixUnit("TEST_VECTORS", "none", (fp.BINARY16,), fp.BINARY32, terms=4, window=23)


@pytest.mark.parametrize("operation", OPERANDS)
@pytest.mark.parametrize("rounding", pick([fp.RNE, fp.SR(8)], [fp.RNE, fp.RTN, fp.SR(8)],
                                          [fp.RNE, fp.RTN, fp.RAZ, fp.SR(8), fp.SR(13)]), ids=repr)
def test_rows_are_the_cores_results(operation, rounding):
    fmt = fp.BINARY16
    vectors = of_format(fmt, operation, rounding, 400, 1)
    rows = np.array(vectors.rows, np.uint64)
    names = [name for name, _ in vectors.columns]
    source = BINARY32 if operation == "convert" else fmt
    operands = [from_codes(rows[:, i].astype(source.code_dtype), source)
                for i in range(len(OPERANDS[operation]))]
    flags = np.zeros(len(rows), np.uint8)
    draw = Draw(np.uint64(0), np.uint64(0), None)
    if "random" in names:
        draw = draw._replace(words=rows[:, names.index("random")].astype(np.uint32))
    settings = fp.Context(fmt, rounding=rounding).core.settings
    out, _ = apply(operation, operands, settings, element_flags=flags, bits=draw)
    assert (to_codes(out, fmt) == rows[:, -2]).all()
    assert (flags == rows[:, -1]).all()
    assert len({int(f) for f in flags}) >= 2, "the rows are not hard"


NARROW = [f for f in CATALOGUE.values() if isinstance(f, Format) and f.bits <= 32]


@pytest.mark.parametrize("fmt", NARROW, ids=str)
def test_every_format_of_the_list_has_vectors(fmt):
    rows = np.array(of_format(fmt, "convert", fp.RNE, 60, 3).rows, np.uint64)
    flags = np.zeros(len(rows), np.uint8)
    x = rows[:, 0].astype(np.uint32).view(np.float32)
    out, _ = apply("convert", [x], fp.Context(fmt).core.settings, element_flags=flags)
    assert (to_codes(out, fmt) == rows[:, -2]).all()
    assert (flags == rows[:, -1]).all()


BLOCKS_OF_A_ROW = [b for b in BLOCKS.values() if b.rows == 1 and (b.elements or 128) <= 64]


@pytest.mark.parametrize("block", BLOCKS_OF_A_ROW, ids=str)
def test_rows_of_a_block_are_what_the_core_quantises(block):
    vectors = of_block(block, fp.RNE, pick(40, 400, 4_000), 4)
    n = block.elements
    for row in vectors.rows:
        x = np.array(row[:n], np.uint32).view(np.float32)
        beside = np.uint32(row[n]).view(np.float32) if block.tensor_scale else np.float32(0)
        both = np.stack([x, np.full(n, beside, np.float32)])
        core = quantise(both, block, fp.RNE, NO_DRAW, None, flags=FLAGS_NONE)
        codes = core.codes[0]
        if block.packed:
            codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(-1)
        assert tuple(codes[:n].tolist()) == row[-n:]
        assert int(core.scales.reshape(-1)[0]) == row[-n - 1]


def test_blocks_that_make_no_rows_are_told():
    with pytest.raises(ValueError, match="more than 64 numbers under a scale; its elements are"):
        of_block(BLOCKS["e4m3-128"], fp.RNE, 1, 0)
    with pytest.raises(ValueError, match="random bits for each element"):
        of_block(BLOCKS["mxfp4"], fp.SR(8), 1, 0)


@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.BFLOAT16, fp.E5M2, fp.E4M3FN, fp.F143, BINARY32],
                         ids=str)
@pytest.mark.parametrize("operation", OPERANDS)
def test_counterexamples_of_proofs_that_a_format_holds_come_first(operation, fmt):
    source = BINARY32 if operation == "convert" else fmt
    held = []
    for bits in COUNTEREXAMPLES.get(operation, ()):
        values = np.array(bits, np.uint32).view(np.float32)
        codes = to_codes(fp.round_to(values, source).astype(source.carrier), source)
        back = from_codes(codes, source).astype(np.float32).view(np.uint32)
        if operation == "convert" or (back == bits).all():
            held.append(bits if operation == "convert" else tuple(map(int, codes)))
    vectors = of_format(fmt, operation, fp.RNE, 12, 0)
    assert [row[: len(OPERANDS[operation])] for row in vectors.rows][: len(held)] == held


def test_rows_of_a_unit_are_the_engines_results():
    vectors = of_unit(UNIT, fp.RNE, 200, 2)
    settings = UnitSettings(UNIT, fp.BINARY16, fp.BINARY16, fp.Context(fp.BINARY32).core.settings)
    for row in vectors.rows:
        codes = np.array(row[:8], np.uint16)
        a, b = from_codes(codes[:4], fp.BINARY16), from_codes(codes[4:], fp.BINARY16)
        values = np.array([[row[8]]], np.uint32).view(np.float32)
        flags = np.zeros((1, 1), np.uint8)
        run_general(Job(settings, a[None].copy(), b[:, None].copy(), values, flags))
        assert (int(to_codes(values, fp.BINARY32)[0, 0]), int(flags[0, 0])) == row[-2:]


def test_the_c_form_compiles(tmp_path):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    lines = [*written(of_unit(UNIT, fp.RNE, 3, 0), "c"),
             "int main(void) { return sizeof(vectors) / sizeof(vectors[0]) != 3; }"]
    (tmp_path / "v.c").write_text("\n".join(lines))
    command = [compiler, "-std=c99", "-Wall", "-Wextra", "-Werror", "-o", "v", "v.c"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run(["./v"], cwd=tmp_path, check=True)


def test_the_systemverilog_form_runs(tmp_path):
    if shutil.which("iverilog") is None:
        pytest.skip("no SystemVerilog simulator")
    vectors = of_format(fp.E5M2, "multiply", fp.RTP, 5, 0)
    bench = """
    module bench; import vectors_pkg::*; vector_t v;
    initial for (int i = 0; i < N; i++) begin
      v = vector(i); $display("%0d %0d %0d %0d", v.x, v.y, v.result, v.flags); end
    endmodule"""
    (tmp_path / "v.sv").write_text("\n".join([*written(vectors, "systemverilog"), bench]))
    subprocess.run(["iverilog", "-g2012", "-o", "v", "v.sv"], cwd=tmp_path, check=True)
    done = subprocess.run(["vvp", "v"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert [tuple(map(int, line.split())) for line in done.stdout.splitlines()] == vectors.rows


@pytest.mark.parametrize("form", FORMS)
def test_forms_hold_every_row(form):
    table = Vectors("convert e5m2 RNE", (("x", 32), ("result", 8), ("flags", 5)),
                    [(1, 0, 3), (0x3F800000, 0x3C, 0)])
    text = "\n".join(written(table, form))
    for value in ("00000001", "3f800000", "3c"):
        assert value in text


def test_bad_input_is_told():
    with pytest.raises(ValueError, match="operation='power' is not known; use one of convert"):
        of_format(fp.BINARY16, "power", fp.RNE, 1, 0)
    with pytest.raises(ValueError, match="takes random bits"):
        of_unit(UNIT, fp.SR(8), 1, 0)
    with pytest.raises(ValueError, match="as='vhdl' is not known"):
        list(written(Vectors("", (), []), "vhdl"))
