"""Kernels under the roofs of their machine: figures by hand, and the picture (golden)."""

from __future__ import annotations

import json

import pytest
from matplotlib import pyplot as plt

from ipu.experiments.bench.roofline import Point, draw, points, read, roofs
from ipu.experiments.cli import main
from ipu.run.pages.drawing import new_figure

HARDWARE = {
    "processor": "P", "cores": 2, "vector_bits": 256, "halves": None, "compiler": "LLVM",
}
COMMON = {
    "format": "binary16", "rounding": "RNE", "bits": None, "flags": False, "data": "normal",
    "threads": 1, "peer": None, "rounds": 7, "range": [1.0, 1.0], "hardware": HARDWARE,
}


def elementwise(topic, ns, reference, **fields):
    ratio = ns / reference
    figures = {"ns_per_element": ns, "reference": reference, "ratio": ratio, "n": 10**7}
    return {**COMMON, **figures, "topic": topic, **fields}


def product(topic, rate, n=480, **fields):
    figures = {"gmac_per_s": rate, "reference": 50.0, "ratio": rate / 50.0, "n": n}
    return {**COMMON, **figures, "topic": topic, "kind": "K", **fields}


RECORDS = [
    elementwise("round", 0.5, 0.4),
    elementwise("round", 2.0, 0.4, rounding="SR", bits=13),
    elementwise("round float64", 1.0, 0.8),
    elementwise("round", 9.0, 0.4, peer="numpy 2"),
    elementwise("arith add", 0.8, 0.4, flags=True),
    elementwise("arith fma", 1.0, 0.4),
    elementwise("arith64 sqrt", 4.0, 0.8),
    product("gemm", 4.0),
    product("gemm AMP_F16_F32", 2.0, data="range"),
    product("gemm BLAS", 50.0, format="binary32"),
    product("gemm BLAS", 25.0, format="binary64"),
]


def test_the_roofs_are_the_copies_and_blas():
    roof = roofs(RECORDS)
    assert roof == (20.0, 50.0)  # 8 bytes in 0.4 ns, 16 in 0.8
    assert roof.at(0.125) == 2.5
    assert roof.at(10.0) == 50.0


def test_every_kernel_has_its_intensity_and_rate():
    assert list(points(RECORDS)) == [
        Point("rounding", "binary16 RNE", 1 / 8, 0.8),
        Point("stochastic rounding", "binary16 SR(13)", 1 / 8, 0.2),
        Point("rounding", "binary16 RNE", 1 / 16, 0.8),
        Point("+ − × ÷ √ fma", "add binary16 RNE flags", 1 / 12, 0.75),
        Point("+ − × ÷ √ fma", "fma binary16 RNE", 1 / 16, 0.8),
        Point("+ − × ÷ √ fma", "sqrt binary16 RNE", 1 / 16, 0.2),
        # n^3 multiply-adds over three matrices of n^2 numbers of 4 bytes.
        Point("products rounded after × and +", "binary16 RNE", 40.0, 0.08),
        Point("products through units", "AMP_F16_F32, range", 40.0, 0.04),
    ]


def test_the_picture_shows_every_family_and_names_the_machine():
    figure, (axes,) = new_figure(6, 4)
    draw(axes, RECORDS)
    shown = {line.get_label(): len(line.get_xdata()) for line in axes.lines[1:]}
    assert shown == {
        "rounding": 2, "stochastic rounding": 1, "+ − × ÷ √ fma": 3,
        "products rounded after × and +": 1, "products through units": 1,
    }
    texts = [text.get_text() for text in axes.texts]
    assert texts[:2] == ["np.copyto: 20.0 GB/s", "BLAS, binary32: 50 GMAC/s"]
    assert axes.get_title(loc="left").startswith("P, 2 cores")
    plt.close(figure)


def test_records_become_a_picture(tmp_path, capsys):
    file, picture = tmp_path / "records.json", tmp_path / "new" / "picture.png"
    file.write_text(json.dumps(RECORDS))
    assert main(["bench", "draw", str(file), str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "8 kernels" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (RECORDS[:7], "no roof"),
        (RECORDS[7:], "no roof"),
        ([*RECORDS, {**RECORDS[0], "hardware": {**HARDWARE, "cores": 3}}], "several machines"),
    ],
)
def test_records_without_a_roof_or_of_two_machines_are_refused(tmp_path, records, words):
    file = tmp_path / "records.json"
    file.write_text(json.dumps(records))
    with pytest.raises(ValueError, match=words):
        read([file])
