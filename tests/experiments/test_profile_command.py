"""fpsim profile and fpsim show, from the command line."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.cli import main
from ipu.experiments.lab.result import rows_from_csv


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "model.npz"
    np.savez(path, w=np.float32([1.0, 2**-26, 1e6, 0.0]), empty=np.empty((0, 3)), **{"0": [0.0]})
    return path


def test_profile_counts_and_draws(saved, tmp_path, capsys):
    assert main(["profile", str(saved), "--formats", "fp16", "--out", str(tmp_path / "o")]) == 0
    out = capsys.readouterr().out
    assert "25.000%" in out
    rows = rows_from_csv((tmp_path / "o" / "model.csv").read_text())
    shares = {r["array"]: r for r in rows if r["part"] == "shares"}
    assert shares["model.npz:w"]["underflows"] == shares["model.npz:w"]["overflows"] == 0.25
    assert shares["model.npz:0"]["zeros"] == 1
    assert shares["model.npz:empty"]["elements"] == 0
    assert (tmp_path / "o" / "model.png").read_bytes().startswith(b"\x89PNG")


def test_profile_refuses_what_it_cannot_read(saved, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("objects.npy", np.array([{}], dtype=object))
    np.save("words.npy", np.array(["a"]))
    whole = np.ones(1000)
    np.save("whole.npy", whole)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:700])
    (tmp_path / "cut.npz").write_bytes(saved.read_bytes()[:300])
    (tmp_path / "nothing.npy").write_bytes(b"")
    np.savez_compressed("packed.npz", whole)
    packed = (tmp_path / "packed.npz").read_bytes()
    (tmp_path / "packed.npz").write_bytes(packed[:70] + b"\xff" * 9 + packed[79:])
    names = [
        "objects.npy",
        "cut.npy",
        "cut.npz",
        "packed.npz",
        "nothing.npy",
        "missing.npy",
        ".",
        "words.npy",
    ]
    for name in names:
        assert main(["profile", name]) == 2, name
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1), name
        assert err.startswith("fpsim: "), name
        assert not (tmp_path / "reports").exists() or name == "words.npy", name


@pytest.mark.parametrize("line", ["--formats binary17", "--formats e8m0", "--out /dev/null/x"])
def test_profile_refuses_other_bad_input(line, saved, capsys):
    assert main(["profile", str(saved), *line.split()]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def shown(capsys, *arguments: str) -> str:
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def test_show_takes_a_code_apart(capsys):
    out = shown(capsys, "0x3c00")
    for part in ("1.0  (normal)", "0 01111 0000000000", "0.99951171875 and 1.0009765625"):
        assert part in out
    assert "subnormal" in shown(capsys, "0x0001", "--format", "e4m3fn")
    assert "quiet NaN" in shown(capsys, "0b0111111000000000")


def test_show_says_where_a_number_lies_and_its_chance_to_go_up(capsys):
    out = shown(capsys, "0.1", "--format", "binary16,bfloat16")
    assert out.count("0.1 in ") == 2
    assert "0x2e66" in out
    assert "0.0999755859375 and 0.10003662109375" in out
    assert "SR() goes up   with probability 0.4" in out
    assert "with probability 0.5" in shown(capsys, "2049", "--rounding", "sr_equal")
    assert "-1.0  (normal)" in shown(capsys, "-1")
    assert "inf  (infinity)" in shown(capsys, "1e6")
    assert "nan  (quiet NaN)" in shown(capsys, "nan")


@pytest.mark.parametrize(
    "line", ["abc", "0x12345", "0xzz", "1 --format binary61", "1 --rounding RNX", ""]
)
def test_show_refuses_bad_input_in_one_line(line, capsys):
    assert main(["show", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
