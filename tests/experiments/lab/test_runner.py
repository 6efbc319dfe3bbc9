"""A run is a function of experiment, quick and seed (law)."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ipu.experiments.lab.catalogue import find
from tests.tiers import pick


def test_same_seed_same_bytes_in_every_process(tmp_path):
    """Also with other threads, and over an earlier run."""
    name = pick("swamping", *["stochastic_accumulation"] * 2)
    command = [sys.executable, "-m", "ipu.experiments.cli", "run", name, "--quick", "--seed", "5"]
    results = {find(name).run(quick=True, seed=5).to_csv().encode()}
    for threads in pick(["1"], *[["1", "2"]] * 2):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "data.csv").write_text("of an earlier run")
        subprocess.run(
            [*command, "--out", str(tmp_path)],
            env={**os.environ, "FPSIM_THREADS": threads},
            check=True,
            capture_output=True,
        )
        results.add((tmp_path / name / "data.csv").read_bytes())
    assert len(results) == 1


#: Stochastic experiments, and where their rows say how they round.
STOCHASTIC = pick(
    [("swamping", "arithmetic")],
    *[[("swamping", "arithmetic"), ("stochastic_accumulation", "rounding")]] * 2,
)


@pytest.mark.parametrize(("name", "key"), STOCHASTIC)
def test_another_seed_changes_what_is_stochastic_and_nothing_else(name, key):
    first, second = (find(name).run(quick=True, seed=seed) for seed in (0, 1))
    assert first.to_csv() != second.to_csv()
    plain = [[r for r in x.rows if "SR" not in str(r.get(key))] for x in (first, second)]
    assert plain[0] == plain[1]
