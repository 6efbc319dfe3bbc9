"""A run is a function of experiment, quick and seed (law)."""

from __future__ import annotations

import os
import subprocess
import sys

from ipu.experiments.lab.catalogue import find


def test_same_seed_same_bytes_in_every_process(tmp_path):
    """Also with other threads, and over an earlier run."""
    name = "stochastic_accumulation"
    command = [sys.executable, "-m", "ipu.experiments.cli", "run", name, "--quick", "--seed", "5"]
    found = set()
    for threads in ("1", "2"):
        subprocess.run(
            [*command, "--out", str(tmp_path / "new")],
            env={**os.environ, "FPSIM_THREADS": threads},
            check=True,
            capture_output=True,
        )
        found.add((tmp_path / "new" / name / "data.csv").read_bytes())
    assert len(found) == 1


def test_another_seed_changes_what_is_stochastic_and_nothing_else():
    for name, key in (("stochastic_accumulation", "rounding"), ("swamping", "arithmetic")):
        first, second = (find(name).run(quick=True, seed=seed) for seed in (0, 1))
        assert first.to_csv() != second.to_csv()
        plain = [[r for r in x.rows if "SR" not in str(r.get(key))] for x in (first, second)]
        assert plain[0] == plain[1]
