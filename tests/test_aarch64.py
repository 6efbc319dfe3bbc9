"""The program of tests on an emulated ARM says what it lacks (corners)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import aarch64


@pytest.mark.parametrize(("emulator", "parts", "sentence"), [
    (False, (), "qemu-aarch64-static is not on the path; install QEMU's user mode"),
    (True, None, "FPSIM_AARCH64 is not set; name a folder with a Debian of arm64"),
    (True, (), "holds no root/usr/bin/python3.11; run: python -m tests.aarch64 --prepare"),
    (True, (aarch64.PYTHON,), "holds no site/numba; run: python -m tests.aarch64 --prepare"),
])
def test_what_is_missing_is_said_with_what_to_do(
    emulator, parts, sentence, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(aarch64.shutil, "which", lambda name: name if emulator else None)
    monkeypatch.setattr(aarch64, "run", lambda *_: pytest.fail("it ran"))
    monkeypatch.delenv("FPSIM_AARCH64", raising=False)
    if parts is not None:
        monkeypatch.setenv("FPSIM_AARCH64", str(tmp_path))
        for part in parts:
            (tmp_path / part).mkdir(parents=True)
    assert aarch64.main([]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["tests/test_digests.py", "-x"]])
def test_an_emulated_python_runs_the_tests_that_are_named_or_those_of_the_processor(
    arguments, tmp_path, monkeypatch
):
    for part in (aarch64.PYTHON, "site/numba"):
        (tmp_path / part).mkdir(parents=True)
    ran = []
    monkeypatch.setenv("FPSIM_AARCH64", str(tmp_path))
    monkeypatch.setattr(aarch64.shutil, "which", lambda name: name)
    monkeypatch.setattr(aarch64, "run", lambda folder, *rest: ran.append((folder, rest)) or 0)
    assert aarch64.main(arguments) == 0
    ((folder, rest),) = ran
    assert folder == tmp_path.resolve()
    assert list(rest[5:]) == (arguments or aarch64.TESTS)


def test_the_tests_that_it_names_are_there():
    for name in aarch64.TESTS:
        path, *_ = name.removeprefix("--deselect=").split("::")
        assert (Path(aarch64.ROOT) / path).is_file()
