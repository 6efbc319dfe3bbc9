"""Vectors for hardware: each row again through the core (differential), forms (golden)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.apply import apply
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge.verify.vectors import (
    COUNTEREXAMPLES,
    FORMS,
    OPERANDS,
    Vectors,
    of_format,
    of_unit,
    written,
)
from fpsim.products.by_unit.general import run_general
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.records.formats import BINARY32
from fpsim.records.units import MatrixUnit
from fpsim.state.draws import Draw
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
    settings = fp.Context(fmt, rounding=rounding).settings
    out, _ = apply(operation, operands, settings, element_flags=flags, bits=draw)
    assert (to_codes(out, fmt) == rows[:, -2]).all()
    assert (flags == rows[:, -1]).all()
    assert len({int(f) for f in flags}) >= 2, "the rows are not hard"


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
    settings = UnitSettings(UNIT, fp.BINARY16, fp.BINARY16, fp.Context(fp.BINARY32).settings)
    for row in vectors.rows:
        codes = np.array(row[:8], np.uint16)
        a, b = from_codes(codes[:4], fp.BINARY16), from_codes(codes[4:], fp.BINARY16)
        values = np.array([[row[8]]], np.uint32).view(np.float32)
        flags = np.zeros((1, 1), np.uint8)
        run_general(Job(settings, a[None].copy(), b[:, None].copy(), values, flags))
        assert (int(to_codes(values, fp.BINARY32)[0, 0]), int(flags[0, 0])) == row[-2:]


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
