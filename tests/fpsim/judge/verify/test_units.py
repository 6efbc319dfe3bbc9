"""Recorded results of tensor cores: the model that reproduces them, and none beside it (golden)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.judge.verify.units import read, verify
from fpsim.records.evidence import Evidence
from fpsim.records.units import UNITS, find_unit
from ipu.experiments.cli import main
from tests.tiers import pick
from tests.vectors import vector_path

RECORDED = [
    ("V100_fp16.npz", "V100_F16_F32"),
    ("V100_fp16.npz", "V100_F16_F16"),
    ("A100_bf16.npz", "A100_BF16_F32"),
    ("Ada_E4M3.npz", "ADA_E4M3_F32"),
    ("Ada_E4M3.npz", "ADA_E4M3_F16"),
    ("B200_E4M3.npz", "B200_MMA_E4M3_F32"),
    ("B200_E4M3.npz", "B200_MMA_E4M3_F16"),
]
#: Sets with binary32 results that tell neighbouring models apart; B200's rows fill no window.
JUDGES = [pair for pair in RECORDED if pair[1].endswith("F32") and "B200" not in pair[1]]
#: In the quick tier the V100 has the stores in binary16.
SOME = [pair for pair in RECORDED if pair[1] != "ADA_E4M3_F16"]


@pytest.mark.vectors
@pytest.mark.source("MATLAB-tensor-core, model_validation, commit b12b5a7")
@pytest.mark.parametrize(("file", "unit"), pick(SOME, RECORDED, RECORDED))
def test_every_recorded_row_is_reproduced(file, unit):
    report = verify(read(vector_path(f"matrix-units/{file}")), unit)
    assert (report.checked, report.mismatches) == (5000, 0)


@pytest.mark.vectors
@pytest.mark.parametrize(("file", "unit"), JUDGES)
@pytest.mark.parametrize("change", [{"window": -1}, {"window": 1}, {"rounding": fp.RNE}])
def test_neighbouring_models_do_not_reproduce_them(file, unit, change):
    record = find_unit(unit)
    if "window" in change:
        other = replace(record, window=record.window + change["window"])
    else:
        other = replace(record, window=None, rounding=fp.RNE)
    report = verify(read(vector_path(f"matrix-units/{file}")), other)
    assert report.mismatches > 200
    assert len(report.failures) == 10
    assert "recorded" in report.failures[0]


@pytest.mark.vectors
@pytest.mark.parametrize(
    ("change", "mismatches"),
    [
        ({"accumulator": fp.BINARY32, "rounding": fp.RTZ}, 1892),
        ({"rounding": fp.RTZ}, None),
        ({"order": "ascending"}, None),
        ({"join": None}, None),
    ],
)
def test_fp8_calls_into_binary16_are_each_rounded_to_binary16(change, mismatches):
    """Even pairs, then odd pairs, chained from zero, then c; each of the three sums is rounded."""
    other = replace(find_unit("B200_MMA_E4M3_F16"), **change)
    report = verify(read(vector_path("matrix-units/B200_E4M3.npz")), other)
    assert report.mismatches > 200
    assert mismatches in (None, report.mismatches)


@pytest.mark.vectors
@pytest.mark.parametrize(("unit", "window"), [("B200_MMA_E4M3_F32", 18), ("B200_MMA_E4M3_F16", 16)])
def test_the_recordings_of_fp8_calls_bound_their_window_from_below_only(unit, window):
    recorded, record = read(vector_path("matrix-units/B200_E4M3.npz")), find_unit(unit)
    assert verify(recorded, replace(record, window=window)).mismatches > 0
    assert verify(recorded, replace(record, window=None)).mismatches == 0
    assert "the window is" in record.facts["window"].source


@pytest.mark.parametrize("part", ["H100", "H200", "B200"])
@pytest.mark.parametrize("inputs", ["E4M3", "E5M2"])
def test_fp8_units_of_one_generation_have_one_model_into_binary16(part, inputs):
    """The recordings of the other parts, which are not among the vectors, agree with it too."""
    names = ("terms", "calls", "window", "cut", "accumulator", "rounding", "order", "join")
    unit, recorded = find_unit(f"{part}_{inputs}_F16"), find_unit("B200_MMA_E4M3_F16")
    assert [getattr(unit, n) for n in names] == [getattr(recorded, n) for n in names]


def test_units_are_measured_where_a_recorded_set_is_reproduced():
    measured = {
        name
        for name, unit in UNITS.items()
        if Evidence.MEASURED in {fact.evidence for fact in unit.facts.values()}
    }
    assert measured == {unit for _, unit in RECORDED}


def write(tmp_path, rows=2, **arrays):
    path = tmp_path / "x.npz"
    usual = {"a": np.zeros((rows, 4), np.uint32), "b": np.zeros((rows, 4), np.uint32),
             "c": np.zeros(rows, np.uint32), "d_fp32": np.zeros(rows, np.uint32)}
    np.savez(path, **{k: v for k, v in (usual | arrays).items() if v is not None})
    return path


def test_a_row_of_zeros_agrees(tmp_path):
    assert str(verify(read(write(tmp_path)), "V100_F16_F32")).endswith("2 rows, 0 mismatches")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"c": None}, "holds no c"),
        ({"d_fp32": None}, "holds no results"),
        ({"a": np.zeros((3, 4), np.uint32)}, "expected uint32 codes of 2 rows"),
        ({"a": np.zeros((2, 3), np.uint32)}, "of one shape"),
        ({"rows": 0}, "holds no rows"),
    ],
)
def test_files_of_another_layout_are_refused(tmp_path, arrays, message):
    with pytest.raises(ValueError, match=message):
        read(write(tmp_path, **arrays))


def test_what_the_unit_cannot_have_made_is_refused(tmp_path):
    recorded = read(write(tmp_path, a=np.full((2, 4), 1, np.uint32)))
    with pytest.raises(ValueError, match="not in binary16"):
        verify(recorded, "V100_F16_F32")
    with pytest.raises(ValueError, match="it holds fp32"):
        verify(recorded, "V100_F16_F32", "fp16")
    with pytest.raises(ValueError, match=r"is no \.npz"):
        read(tmp_path / "missing.npz")


def test_the_command_refuses_files_that_hold_nothing_in_one_line(tmp_path, capsys):
    complete = write(tmp_path).read_bytes()
    np.save(tmp_path / "a.npy", np.zeros(2, np.uint32))
    contents = {
        "empty.npz": b"",
        "cut.npz": complete[:-9],
        "a.npy": (tmp_path / "a.npy").read_bytes(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
        path = str(tmp_path / name)
        assert main(["verify", "matrix-unit", path, "--unit", "V100_F16_F32"]) == 2, name
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1), name
        assert f"file={path!r}" in err
