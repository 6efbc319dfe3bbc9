"""What records say of the machine (golden)."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from ipu.experiments.bench import hardware as module
from ipu.experiments.bench.hardware import Hardware, hardware


def test_this_machine_has_a_name_vectors_and_a_compiler():
    here = hardware()
    assert here.processor
    assert here.cores == os.cpu_count()
    assert here.vector_bits in (64, 128, 256, 512)
    assert (here.halves is None) == (here.vector_bits < 512)
    assert "LLVM" in here.compiler


@pytest.mark.parametrize(("features", "bits"), [
    ((), 64), (("neon",), 128), (("sse2",), 128), (("sse2", "avx2"), 256),
    (("sse2", "avx2", "avx512f"), 512),
])
def test_the_widest_registers_count(monkeypatch, features, bits):
    monkeypatch.delenv("FPSIM_CPU_LEVEL", raising=False)
    monkeypatch.setattr(module, "host_features", lambda: features)
    monkeypatch.setattr(module, "_halves", lambda: True)
    assert hardware.__wrapped__().vector_bits == bits


@pytest.mark.skipif(platform.machine() != "x86_64", reason="a level of x86-64")
def test_a_level_below_the_processor_is_what_a_record_names():
    script = "from ipu.experiments.bench.hardware import hardware; print(hardware())"
    out = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True,
        env={**os.environ, "FPSIM_CPU_LEVEL": "x86-64-v2"},
    ).stdout
    assert "vectors of 128 bits; numba" in out
    assert out.endswith(" for x86-64-v2\n")


def test_vectors_run_in_halves_where_they_take_the_time_of_two(monkeypatch):
    """The clock is asked before and after sixteen lanes, and after eight."""
    for of_whole, expected in ((2.0, True), (1.0, False)):
        ticks = iter([0.0, of_whole, of_whole + 1.0] * 9)
        monkeypatch.setattr(module, "_chains", lambda kind: lambda n: None)
        monkeypatch.setattr(module.time, "perf_counter", lambda ticks=ticks: next(ticks))
        assert module._halves() is expected


def test_the_text_says_how_wide_vectors_run():
    texts = {str(Hardware("P", 2, 512, halves, "LLVM")) for halves in (True, False)}
    assert texts == {
        "P, 2 cores, vectors of 512 bits in halves; LLVM",
        "P, 2 cores, vectors of 512 bits at once; LLVM",
    }
