"""Stages of Keras models (golden messages; law: a pipeline has the bits of the accumulation)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.frontends.tensorflow.keras.stages import PipelineStage, stages_of, summary_lines
from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, tf
from tests.ipu.frontends.tensorflow.keras.test_functions import data

layers = tf.keras.layers


def functional(*stages):
    """Two dense layers and their sum, each called in its stage; None: in no one."""
    tf.keras.utils.set_random_seed(1)
    x = tf.keras.Input((8,), name="x")
    with PipelineStage(stages[0]):
        a = layers.Dense(8, "relu", name="a")(x)
    both = layers.Add(name="both")
    with PipelineStage(stages[1]):
        b = both([a, layers.Dense(8, "tanh", name="b")(a)])
    last = layers.Dense(4, name="c")
    if stages[2] is None:
        return tf.keras.Model(x, last(b), name="m")
    with PipelineStage(stages[2]):
        return tf.keras.Model(x, last(b), name="m")


def trained(build, change, ipus=2):
    """Losses of an epoch, and the weights."""
    with machine(), ipu.ipu_strategy.IPUStrategyV1().scope():
        configured(ipus)
        model = build()
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.SGD(0.1, 0.9), loss, steps_per_execution=8)
        change(model)
        losses = model.fit(data().take(8), verbose=0).history["loss"]
        return losses, model.get_weights()


class Own(tf.keras.Model):
    """A model that names its stages while it runs."""

    def __init__(self):
        super().__init__()
        self.a = layers.Dense(8, "relu")
        self.b = layers.Dense(4)

    def call(self, x):
        """The logits."""
        with PipelineStage(0):
            x = self.a(x)
        with PipelineStage(1):
            return self.b(x)


def same(x, y):
    assert x[0] == y[0]
    for a, b in zip(x[1], y[1], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.source("graphcore/keras, docs: pipelined functional and subclassed models")
@pytest.mark.parametrize("is_class", [False, pytest.param(True, marks=pytest.mark.tier("full"))])
def test_a_pipeline_has_the_bits_of_the_accumulation(is_class):
    def build():
        tf.keras.utils.set_random_seed(1)
        return Own() if is_class else functional(0, 1, 1)

    def pipelined(model):
        mapping = {"device_mapping": [1, 0]} if is_class else {}
        model.set_pipelining_options(4, **mapping)

    def accumulated(model):
        model.set_gradient_accumulation_options(4)

    same(trained(build, pipelined), trained(build, accumulated, ipus=1))


def test_an_own_call_needs_the_mapping():
    with pytest.raises(ValueError, match="Pipeline requires at least two computational stages"):
        trained(Own, lambda model: model.set_pipelining_options(4))


def test_assignments_are_those_of_the_scopes_and_can_be_set():
    with ipu.ipu_strategy.IPUStrategyV1().scope():
        model = functional(0, 1, 2)
        actual = model.get_pipeline_stage_assignment()
        assert [(a.layer.name, a.node_index, a.pipeline_stage) for a in actual] == [
            ("a", 0, 0), ("b", 0, 1), ("both", 0, 1), ("c", 0, 2),
        ]
        assert [layer.name for layer in actual[2].inbound_layers] == ["a", "b"]
        assert str(actual[3]) == "Layer: c (node index 0) is assigned to pipeline stage: 2"
        actual[3].pipeline_stage = 1
        model.set_pipeline_stage_assignment(actual)
        assert [a.pipeline_stage for a in model.get_pipeline_stage_assignment()] == [0, 1, 1, 1]
        model.reset_pipeline_stage_assignment()
        assert stages_of(model) == (0, 1, 1, 2)


def test_a_call_goes_before_its_layer():
    with ipu.ipu_strategy.IPUStrategyV1().scope():
        with PipelineStage(0):
            shared, x = layers.Dense(8), tf.keras.Input((8,))
            y = shared(x)
        with PipelineStage(1):
            y = shared(y)
        assert stages_of(tf.keras.Model(x, y)) == (0, 1)
        with PipelineStage(0):
            first = layers.Dense(8, input_shape=(8,))
        with PipelineStage(1):
            model = tf.keras.Sequential([first, layers.Dense(4)])
        assert stages_of(model) == (0, 1)
        assert model.get_pipeline_stage_assignment() == [0, 1]
    assert stages_of(tf.keras.Sequential([layers.Dense(4)])) is None


def change(model, **stages):
    """Set the stages of these layers."""
    actual = model.get_pipeline_stage_assignment()
    for assignment in actual:
        assignment.pipeline_stage = stages.get(assignment.layer.name, assignment.pipeline_stage)
    model.set_pipeline_stage_assignment(actual)


def test_stages_that_cannot_be_are_refused():
    with ipu.ipu_strategy.IPUStrategyV1().scope():
        model = functional(0, 1, 2)
        with pytest.raises(
            ValueError, match=r"found pipeline stages 0, 1, 5, .* missing 2, 3, 4\."
        ):
            change(model, c=5)
        with pytest.raises(ValueError, match="Layer b in pipeline stage 0 has a dependency from"):
            change(model, a=1, b=0)
        with pytest.raises(ValueError, match="Layer c with node index 0 has not been assigned a"):
            change(model, c=None)
        actual = model.get_pipeline_stage_assignment()
        with pytest.raises(ValueError, match=r"\(3\) does not match the total .* \(currently 4\)"):
            model.set_pipeline_stage_assignment(actual[:3])
        with pytest.raises(ValueError, match="can only be assigned to a single pipeline stage"):
            model.set_pipeline_stage_assignment([*actual[:3], actual[0]])
        with pytest.raises(ValueError, match="instances of `FunctionalLayerPipelineStageAssign"):
            model.set_pipeline_stage_assignment([0, 1, 1, 1])
        with pytest.raises(ValueError, match="However, c has not been assigned to one"):
            stages_of(functional(0, 1, None))


def test_where_a_scope_may_stand():
    with pytest.raises(RuntimeError, match="only be used from within an IPUStrategy"):
        PipelineStage(0).__enter__()
    with ipu.ipu_strategy.IPUStrategyV1().scope():
        with pytest.raises(ValueError, match="-1 is not a valid pipeline stage"):
            PipelineStage(-1).__enter__()
        with PipelineStage(0), pytest.raises(RuntimeError, match="must not be nested"):
            PipelineStage(1).__enter__()


@pytest.mark.source("graphcore/keras, sequential_pipeline_api_test.py: columns of the table")
def test_the_summary_is_a_table():
    model = tf.keras.Sequential([layers.Flatten(name="f"), layers.Dense(4, name="d")], name="m")
    lines = []
    model.print_pipeline_stage_assignment_summary(line_length=65, print_fn=lines.append)
    assert lines == [
        'Model: "m"', "_" * 65, "Layer (type)".ljust(32) + "Pipeline Stage".ljust(33), "=" * 65,
        "f (Flatten)".ljust(32) + "None".ljust(33), "_" * 65,
        "d (Dense)".ljust(32) + "None".ljust(33), "=" * 65,
    ]
    with ipu.ipu_strategy.IPUStrategyV1().scope():
        lines = summary_lines(functional(0, 1, 2), (0, 1, 1, 2), 85)
    assert lines[2] == "Layer (type) (node index)".ljust(34) + "Input Layers".ljust(34) + (
        "Pipeline Stage".ljust(17)
    )
    assert lines[8] == "both (Add) (0)".ljust(34) + "a, b".ljust(34) + "1".ljust(17)
