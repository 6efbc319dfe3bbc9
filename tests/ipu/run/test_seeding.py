"""Seeds of pairs: programs with and without seeds of their own (law).

Those of torch and TensorFlow are run by `fpsim … --pair` in tests of the command line.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from ipu.run.seeding import seeded

PROGRAMS = {
    "Python": lambda: random.random(),
    "Python, seeded": lambda: (random.seed(5), random.random())[1],
    "Python, seeded by the system": lambda: (random.seed(), random.random())[1],
    "numpy": lambda: np.random.random(),  # noqa: NPY002
    "numpy, seeded": lambda: (np.random.seed(5), np.random.random())[1],  # noqa: NPY002
    "a generator": lambda: np.random.default_rng().random(),
    "a generator, seeded": lambda: np.random.default_rng(5).random(),
    "a generator, seeded by name": lambda: np.random.default_rng(seed=5).random(),
}


def drawn(program, pair):
    with seeded(pair):
        return program()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_pair_is_one_run_and_another_pair_another(name):
    program = PROGRAMS[name]
    assert drawn(program, 3) == drawn(program, 3)
    assert len({drawn(program, pair) for pair in range(4)}) == 4


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.endswith("seeded")])
def test_pair_0_of_a_program_with_a_seed_is_the_program_as_it_stands(name):
    assert drawn(PROGRAMS[name], 0) == PROGRAMS[name]()


def test_generators_are_streams_of_their_own():
    with seeded(0):
        assert np.random.default_rng().random() != np.random.default_rng().random()


def test_setting_a_seed_is_what_it_was_afterwards():
    before = random.seed, np.random.seed, np.random.default_rng
    drawn(PROGRAMS["numpy"], 1)
    assert (random.seed, np.random.seed, np.random.default_rng) == before
