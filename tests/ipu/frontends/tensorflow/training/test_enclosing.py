"""What the loop that is being built allows (law)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.training.enclosing import (
    building_loop,
    building_pipeline,
    check_accumulation,
    check_checkpoints,
    check_no_pipeline,
)
from tests.ipu.frontends.tensorflow.framework import tf


def test_counts_must_divide_the_iterations_of_the_innermost_loop():
    with building_loop(8):
        check_accumulation(4)
        with building_loop(6), pytest.raises(tf.errors.FailedPreconditionError, match="6 iterat"):
            check_accumulation(4)
        with building_loop(tf.constant(7)):
            check_accumulation(4)
    with pytest.raises(tf.errors.FailedPreconditionError, match="not inside a training loop"):
        check_accumulation(1)


def test_tensorflows_own_loop_is_a_loop():
    @tf.function
    def program():
        for _ in tf.range(3):
            check_accumulation(3)

    program.get_concrete_function()


def test_pipelines_accumulate_by_themselves():
    check_no_pipeline("Optimizer")
    with building_pipeline(), pytest.raises(ValueError, match=r"^Optimizer inside a pipeline: "):
        check_no_pipeline("Optimizer")


@pytest.mark.parametrize(
    ("schedule", "ipus", "fits"),
    [("Grouped", 2, True), ("Sequential", 1, True), ("Interleaved", 2, False),
     ("Sequential", 2, False), ("Grouped", 1, False)],
)
def test_checkpoints_go_with_one_schedule(schedule, ipus, fits):
    check_checkpoints()
    with building_pipeline(schedule, ipus):
        if fits:
            check_checkpoints()
            return
        with pytest.raises(ValueError, match=f"pipeline_schedule={schedule} on {ipus} IPU"):
            check_checkpoints()
