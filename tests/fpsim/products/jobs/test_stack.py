"""The shape of a stack, and a job of it that says how far its numbers reach."""

from __future__ import annotations

import numpy as np

from fpsim.products.jobs.job import Job
from fpsim.products.jobs.stack import Stack


def test_a_stack_has_the_rows_of_all_its_matrices():
    assert Stack(np.zeros((4, 3, 2), np.float32)).shape == (12, 2)


def test_a_job_looks_at_all_the_numbers():
    a, b = np.float32([[[1]], [[-8]]]), np.float32([[[0]], [[0.5]]])
    job = Job(None, Stack(a), b, np.zeros((2, 1), np.float32), None, fresh=True)
    assert job.reach()[:4] == (1.0, 8.0, 0.5, 0.5)
