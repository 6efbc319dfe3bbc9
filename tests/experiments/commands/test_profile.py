"""fpsim profile, from the command line."""

from __future__ import annotations

import json

import ml_dtypes
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
    ones = np.ones(1000)
    np.save("whole.npy", ones)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:700])
    (tmp_path / "cut.npz").write_bytes(saved.read_bytes()[:300])
    (tmp_path / "nothing.npy").write_bytes(b"")
    np.savez_compressed("packed.npz", ones)
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


def test_arrays_of_other_numbers_are_skipped_by_name(tmp_path, capsys):
    np.savez(tmp_path / "m.npz", w=np.float32([1.0]), steps=np.arange(3), ok=np.array([True]))
    assert main(["profile", str(tmp_path / "m.npz"), "--out", str(tmp_path / "o")]) == 0
    out, err = capsys.readouterr()
    assert "m.npz:w " in out
    assert "fpsim: skipped m.npz:steps: its elements are int64" in err
    assert "fpsim: skipped m.npz:ok: its elements are bool" in err
    np.savez(tmp_path / "n.npz", steps=np.arange(3))
    assert main(["profile", str(tmp_path / "n.npz")]) == 2
    assert "holds no floating-point array (n.npz:steps: " in capsys.readouterr().err


def test_bfloat16_without_a_name_is_read_as_it_is_told(tmp_path, capsys):
    np.save(tmp_path / "b.npy", np.array([1.0, 2**-30, 3.0, 1e30], ml_dtypes.bfloat16))
    line = ["profile", str(tmp_path / "b.npy"), "--out", str(tmp_path / "o"), "--formats", "fp16"]
    assert main(line) == 2
    assert "say --dtype bfloat16" in capsys.readouterr().err
    assert main([*line, "--dtype", "float8_e5m2"]) == 2
    assert "has 1 bytes, its elements have 2" in capsys.readouterr().err
    assert main([*line, "--dtype", "bfloat16", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["underflows"], row["overflows"], row["elements"]) == (0.25, 0.25, 4)


def test_two_files_of_one_name_keep_their_tables(tmp_path, capsys):
    for folder, value in (("a", 1.0), ("b", 1e6)):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "w.npy", np.float32([value]))
    for folder in ("a", "b", "a", "b"):
        file = str(tmp_path / folder / "w.npy")
        assert main(["profile", file, "--formats", "fp16", "--out", str(tmp_path / "o")]) == 0
    names = sorted(p.name for p in (tmp_path / "o").iterdir())
    assert names == ["w-2.csv", "w-2.png", "w.csv", "w.png"]
    for name, share in (("w", 0), ("w-2", 1)):
        first, *_ = rows_from_csv((tmp_path / "o" / f"{name}.csv").read_text())
        assert first["overflows"] == share


def test_nans_and_infinities_are_counted(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.float32([np.nan, np.nan, np.nan, np.inf]))
    assert main(["profile", str(tmp_path / "x.npy"), "--out", str(tmp_path / "o")]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert "75.000%" in line
    assert "25.000%" in line
