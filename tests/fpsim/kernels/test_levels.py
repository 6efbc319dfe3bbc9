"""Levels of processors: what is asked for is compiled for, and nothing else is taken (corners)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from numba.core import config

from fpsim.kernels.levels import LEVELS, features_of, force_level, host_features
from tests.fpsim.kernels.test_compiling import run

HERE = [name for name, needs in LEVELS.items() if host_features().issuperset(needs)]
PRINT = (
    "import fpsim\nfrom numba.core.registry import cpu_target\n"
    "print(fpsim.Context(fpsim.BINARY16).array(0.1).values.tolist())\n"
    "print(*cpu_target.target_context.codegen().magic_tuple()[1:])\n"
)


def test_levels_of_x86_have_what_lower_ones_have():
    sets = [set(needs) for name, needs in LEVELS.items() if name.startswith("x86")]
    assert sets == sorted(sets, key=len)
    assert all(low < high for low, high in pairwise(sets))


def test_an_arm_and_an_x86_have_no_level_in_common():
    assert all(name.startswith("x86") != (HERE == ["aarch64"]) for name in HERE)


@pytest.mark.skipif(not HERE, reason="the processor has none of the levels")
def test_a_process_compiles_for_the_level_that_it_is_told(tmp_path):
    process = run(PRINT, FPSIM_CPU_LEVEL=HERE[0], FPSIM_CACHE_DIR=str(tmp_path))
    assert process.stderr == ""
    name = "generic" if HERE[0] == "aarch64" else HERE[0]
    assert process.stdout == f"0.0999755859375\n{name} {features_of(HERE[0])}\n"


def test_a_level_that_the_processor_lacks_is_refused_with_what_is_missing():
    before = config.CPU_NAME
    with pytest.raises(ValueError, match=r"needs avx512f, avx512bw, .* name a lower level"):
        force_level("x86-64-v4", frozenset(LEVELS["x86-64-v3"]))
    assert before == config.CPU_NAME


def test_without_a_level_numba_chooses():
    before = config.CPU_NAME, config.CPU_FEATURES
    for level in (None, ""):
        force_level(level, host_features())
    assert before == (config.CPU_NAME, config.CPU_FEATURES)
