"""What fpsim doctor says of a sound installation and of one with a wrong bit (behaviour)."""

from __future__ import annotations

import json

import pytest

from fpsim.records.rounding import RNE
from ipu.experiments.cli import main
from ipu.experiments.lab import checkup


def test_this_installation_has_the_published_bits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["check"] for row in rows] == list(checkup.CHECKS)
    assert all(row["digest"] == row["published"] and row["equal"] for row in rows)


def test_checks_tell_units_and_formats_apart() -> None:
    digests = [check.digest for check in checkup.CHECKS.values()]
    assert len(set(digests)) == len(digests)


def test_a_wrong_bit_is_told_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compute() -> checkup.Items:
        (*codes, flags) = checkup._arithmetic("binary16", RNE)
        changed = codes[0].copy()
        changed[3, 5] ^= 1
        yield from (changed, *codes[1:], flags)

    sound = checkup.CHECKS["arithmetic binary16 RNE"]
    name, check = "arithmetic binary16 RNE", sound._replace(compute=compute)
    monkeypatch.setattr(checkup, "CHECKS", {name: check})
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert f"DIFFERS, published {sound.digest}" in text
    assert "report it with fpsim doctor --machine" in text


def test_the_machine_is_described(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(checkup, "CHECKS", {})
    assert main(["doctor", "--machine"]) == 0
    lines = capsys.readouterr().out.splitlines()
    facts = {line[:28].strip(): line[28:] for line in lines}
    assert {"Python", "numba", "torch", "tensorflow", "processor", "kernels", "pack"} <= set(facts)
    assert all(facts.values())
