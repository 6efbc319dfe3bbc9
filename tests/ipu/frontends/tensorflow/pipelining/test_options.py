"""Options of stages and what optimizer functions return (golden: the vendor's messages)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow.engine.node import marked
from ipu.frontends.tensorflow.pipelining.options import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    check_stage_options,
)
from ipu.frontends.tensorflow.settings.notes import forget
from tests.ipu.frontends.tensorflow.framework import launch, machine, session, tf
from tests.ipu.frontends.tensorflow.pipelining.networks import (
    STAGES,
    dense,
    momentum,
    pipelined,
    run,
)

HALF = PipelineStageOptions(matmul_options={"partialsType": "half"})


def test_numbers_of_the_schedules():
    assert [s.value for s in PipelineSchedule] == [0, 1, 2]


def test_partials_of_a_stage_reach_its_products():
    def wide(x, y):
        return dense(tf.tile(x, [1, 32]), 16, "wide"), y

    stages = [wide, *STAGES[1:]]
    _, usual, _ = run(pipelined(stages=stages), launches=1)
    options = [HALF, *[PipelineStageOptions()] * 3]
    named = {"forward_propagation_stages_poplar_options": options}
    _, half, _ = run(pipelined(stages=stages, **named), launches=1)
    assert any((a != b).any() for a, b in zip(usual, half, strict=True))


def test_backward_partials_of_a_stage_are_those_of_its_gradients_alone():
    x = tf.constant(np.random.default_rng(0).normal(size=(4, 256)), tf.half)
    w = tf.constant(np.random.default_rng(1).normal(size=(256, 256)), tf.half)

    def program(forward, backward):
        marks = {"partials": forward} | (
            {} if backward is None else {"backward_partials": backward}
        )

        def compute(x, w):
            with tf.GradientTape() as tape:
                tape.watch(w)
                with marked(**marks):
                    y = tf.matmul(x, w) @ w
            return y, tape.gradient(y, w)

        with machine():
            return [r.numpy() for r in launch(tf.function(compute), x, w)]

    half, wide = program("half", "half"), program("float", "float")
    mixed, followed, usual = program("half", "float"), program("half", None), program("half", "")
    assert np.array_equal(mixed[0], half[0])
    assert not np.array_equal(mixed[0], wide[0])
    assert not np.array_equal(mixed[1], half[1])
    assert np.array_equal(followed[1], half[1])
    assert np.array_equal(usual[1], mixed[1])


def test_backward_options_of_a_pipeline_reach_its_gradients():
    options = [HALF, *[PipelineStageOptions()] * 3]
    named = {"backward_propagation_stages_poplar_options": options}
    losses, _, used = run(pipelined(**named), launches=1)
    assert len(losses)
    plans, marks = [*used.plans.values()], []
    while plans:
        plan = plans.pop()
        plans += plan._parts
        sites = [step.site for step in plan._steps]
        marks += [s.node.marks for s in sites if s.direction == "backward"]
    assert {m["backward_partials"] for m in marks if m.get("stage") == 0} <= {"half"}
    assert {m["backward_partials"] for m in marks if m.get("stage") == 1} == {""}


def test_other_options_are_accepted_and_a_note_says_so():
    forget()
    with pytest.warns(RuntimeWarning, match="matmul_options: availableMemoryProportion is accept"):
        PipelineStageOptions(matmul_options={"availableMemoryProportion": "0.2"})
    with pytest.raises(TypeError, match="slice_options must be a dictionary"):
        PipelineStageOptions(slice_options=[1])
    with pytest.raises(ValueError, match="partialsType='float16' is not known"):
        _ = PipelineStageOptions(matmul_options={"partialsType": "float16"}).partials
    with pytest.raises(TypeError, match="must be a list or a tuple of PipelineStageOptions"):
        check_stage_options(HALF, 1, "options")
    with pytest.raises(TypeError, match="Expected all elements of options to be of type Pipel"):
        check_stage_options([1], 1, "options")


def test_optimisers_of_each_kind_take_their_own_arguments():
    with session():
        loss = tf.constant(1.0) * 2
        keras = tf.keras.optimizers.SGD(0.1)
        with pytest.raises(TypeError, match="opt must be a TensorFlow Optimizer object"):
            OptimizerFunctionOutput("SGD", loss)
        with pytest.raises(TypeError, match="loss must be a TensorFlow Tensor object"):
            OptimizerFunctionOutput(momentum(), 1.0)
        with pytest.raises(ValueError, match="are for optimisers with compute_gradients"):
            OptimizerFunctionOutput(keras, loss, compute_gradients_kwargs={"x": 1})
        with pytest.raises(ValueError, match="variables and tape are for optimisers of Keras"):
            OptimizerFunctionOutput(momentum(), loss, variables=[1])
        with pytest.raises(ValueError, match="variables must be empty when"):
            OptimizerFunctionOutput(keras, loss, variables=[1], tape=tf.GradientTape())
        with pytest.raises(NotImplementedError, match="not captured in pipelines"):
            OptimizerFunctionOutput(keras, loss, gradient_capture_context=1)
