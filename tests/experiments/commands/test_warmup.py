"""fpsim warmup: what it calls, what it packs, what it refuses (corners)."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from fpsim.context import Context
from fpsim.elementwise import folding, recorded_program
from fpsim.kernels.elementwise import row_steps
from fpsim.kernels.levels import LEVELS, host_features
from fpsim.products.by_operation import calls
from fpsim.state import counts, tallies
from ipu.experiments.bench import gemm, train, warm
from ipu.experiments.cli import main
from ipu.experiments.commands import warmup
from ipu.run import updates
from tests.tiers import reaches

HERE = [name for name, needs in LEVELS.items() if host_features().issuperset(needs)]


def test_every_kind_of_product_and_network_is_called():
    names = [name for name, _ in warm.calls()]
    assert {f"products: {row.kind}" for row in gemm.ROWS} < set(names)
    assert {f"products through {unit}" for unit in warm.UNITS} < set(names)
    assert {f"training: {name}, exact" for name in train.NETWORKS} < set(names)
    assert {f"{kind} in one call, binary16, SR" for kind in ("rows", "updates")} < set(names)


def test_first_products_meet_kernels_that_were_called_before(monkeypatch):
    """Of new contexts, whose flags are down: usual numbers, ones, and sums that overflow."""
    variants = set()
    kernel = calls.mac_kernel
    monkeypatch.setattr(calls, "mac_kernel", lambda x: (variants.add(x), kernel(x))[1])
    calls._native_loop.cache_clear()  # asks for a kernel once in a process
    warm._products(Context("binary16"), None)
    called, normal = set(variants), np.random.default_rng(1).standard_normal((64, 64))
    assert called
    calls._native_loop.cache_clear()
    for values in (normal, np.ones((64, 64)), np.eye(5), normal[:2, :2], 150 * normal):
        half = Context("binary16")
        x = half.array(values)
        with np.errstate(all="ignore"):
            x @ x
    assert variants == called


def test_kernels_of_training_steps_are_among_those_that_are_called(monkeypatch):
    """Rows and updates run as programs, running sums by the processor."""
    programs = []
    for module, name in (
        (recorded_program, "run_sequence"), (row_steps, "run_rows"), (folding, "running_kernel"),
        (folding, "folding_kernel"), (updates, "tally_moves"), (tallies, "tally_values"),
        (counts, "tally_results"),
    ):
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *arguments, name=name, function=function: (
            programs.append(name) or function(*arguments)
        ))
    for name, call in warm._machine():
        if "binary32, SR" not in name:
            call()
    assert set(programs) == {
        "run_sequence", "run_rows", "running_kernel", "folding_kernel", "tally_moves",
        "tally_values", "tally_results",
    }


def test_calls_are_made_and_counted(monkeypatch, capsys):
    calls = []
    few = [("one", lambda: calls.append(1)), ("two", lambda: calls.append(2))]
    if reaches("full"):
        few = [*list(warm.calls())[:3], *few]
    monkeypatch.setattr(warm, "calls", lambda: iter(few))
    assert main(["warmup"]) == 0
    assert calls == [1, 2]
    assert f"{len(few)} kinds of calls are ready" in capsys.readouterr().out


@pytest.mark.parametrize(("options", "sentence"), [
    (["--level", "x86-64-v3"], "level='x86-64-v3' is for packs; add --pack FOLDER"),
    (["--pack", "p", "--level", "z80"], "level='z80' cannot be packed here; use "),
])
def test_levels_that_make_no_sense_are_refused(options, sentence, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["warmup", *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(not HERE, reason="the processor has none of the levels")
def test_all_levels_of_the_processor_are_packed_unless_some_are_named():
    assert warmup.check_levels(()) == tuple(HERE)
    assert warmup.check_levels((HERE[0],)) == (HERE[0],)


@pytest.mark.skipif(not HERE, reason="the processor has none of the levels")
def test_a_pack_is_whole_beside_another_that_the_process_could_take(tmp_path):
    """Twice the same: the second process finds the first one's pack where packs of wheels lie."""
    few = (
        "import sys\nfrom pathlib import Path\nimport fpsim\nfrom fpsim.kernels import packs\n"
        "from ipu.experiments.bench import warm\npacks.FOLDER = Path(sys.argv[1])\n"
        "warm.make_calls = lambda: [fpsim.Context('binary16').array(0.1).item()]\n"
    )
    names = []
    for turn in ("first", "second"):
        subprocess.run(
            [sys.executable, "-c", few + warmup.PACK, str(tmp_path / "packs"), HERE[-1]],
            env={**os.environ, "FPSIM_CPU_LEVEL": HERE[-1],
                 "FPSIM_CACHE_DIR": str(tmp_path / turn)},
            check=True, capture_output=True,
        )
        (path,) = (tmp_path / "packs").iterdir()
        with zipfile.ZipFile(path) as archive:
            names.append(archive.namelist())
    assert len(names[0]) > 1
    assert names[1] == names[0]


@pytest.mark.skipif(not HERE, reason="the processor has none of the levels")
@pytest.mark.tier("deep")
def test_a_pack_is_written_for_a_level(tmp_path):
    assert main(["warmup", "--pack", str(tmp_path), "--level", HERE[-1]]) == 0
    (path,) = tmp_path.iterdir()
    assert path.name.startswith(HERE[-1])
    assert path.stat().st_size > 500_000
