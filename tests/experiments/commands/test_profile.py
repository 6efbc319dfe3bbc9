"""fpsim profile, from the command line."""

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
