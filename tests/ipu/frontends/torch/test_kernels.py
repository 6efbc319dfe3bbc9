"""Whole kernels are off in a session, and as they were after it (law)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ipu.frontends.torch.framework import machine, torch

pytest.importorskip("ipu.frontends.torch.kernels")
ROOT = Path(__file__).parents[4]

#: Compiled functions of a program that has imported no compiler before.
PROGRAM = """
import sys, torch, fpsim.torch
before = torch.compile
assert "torch._dynamo" not in sys.modules
with fpsim.torch.machine("f16") as run:
    step = torch.compile(lambda x: (x * 0.1).sin(), backend="aot_eager")
    net = torch.compile(torch.nn.Linear(5, 2))
    y = step(torch.ones(5)) + net(torch.ones(1, 5)).sum(1)
assert torch.equal(y, y.half().float()), y
assert run.report()["native"] == 0
assert torch.compile is before
assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item() == 2
"""


def test_compiling_inside_a_session_runs_what_is_written():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, cwd=ROOT)


@pytest.mark.filterwarnings("ignore")
def test_compiled_functions_run_as_they_are_written():
    twice = torch.compile(lambda x: x * 2 + 1)
    with machine() as session:
        assert torch.equal(twice(torch.ones(3)), torch.full((3,), 3.0))
    assert session.report()["operations"]["machine"] == 2


def test_settings_of_torch_are_as_before():
    def settings():
        return (
            torch.backends.mha.get_fastpath_enabled(), torch.backends.mkldnn.enabled,
            torch.backends.cuda.flash_sdp_enabled(), torch.compile,
        )

    before = settings()
    with machine():
        assert settings() != before
    assert settings() == before
    with pytest.raises(KeyError), machine():
        raise KeyError
    assert settings() == before
