"""Pipelines have the bits of the same model without one; their options (law, golden)."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from ipu.frontends.tensorflow.pipelining.ops import last_plan, recomputation_checkpoint
from ipu.frontends.tensorflow.pipelining.options import PipelineSchedule, RecomputationMode
from ipu.frontends.tensorflow.settings.notes import forget
from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, session, tf
from tests.ipu.frontends.tensorflow.pipelining.networks import (
    STAGES,
    X,
    dense,
    hidden,
    last,
    momentum,
    pipelined,
    plain,
    run,
)

OUTPUT = ipu.pipelining_ops.OptimizerFunctionOutput


@pytest.fixture(scope="module", params=[False, True], ids=["nearest", "stochastic"])
def reference(request):
    losses, weights, _ = run(plain(8), ipus=1, esr=request.param)
    assert np.mean(losses[-8:]) != np.mean(losses[:8])
    return request.param, losses, weights


CASES = list(itertools.product(PipelineSchedule, (False, True)))


@pytest.mark.parametrize(("schedule", "recompute"), CASES)
def test_no_schedule_changes_a_bit(reference, schedule, recompute):
    esr, losses, weights = reference
    actual, ours, used = run(pipelined(pipeline_schedule=schedule), esr=esr, recompute=recompute)
    np.testing.assert_array_equal(actual, losses)
    for a, b in zip(ours, weights, strict=True):
        np.testing.assert_array_equal(a, b)
    assert used.launches == 2
    plan = last_plan()
    assert plan.schedule.value == schedule.name.lower()
    assert (plan.recomputation is None) is (not recompute)


def test_what_lives_in_remote_memory_changes_no_bit_and_is_in_the_plan(reference):
    esr, losses, _ = reference
    names = ("activations", "weights", "gradient_accumulation_buffers", "weight_update_variables")
    forget()
    with pytest.warns(RuntimeWarning, match="where the state of an optimiser lies changes no bit"):
        actual, *_ = run(pipelined(**{f"offload_{name}": True for name in names}), esr=esr)
    np.testing.assert_array_equal(actual, losses)
    assert last_plan().offloaded == {"activations", "weights", "accumulators", "state"}


@pytest.mark.parametrize("method", ["MEAN", "RUNNING_MEAN"])
def test_methods_and_types_of_accumulation_are_those_of_the_optimiser(method):
    def cast(loss):
        inner = momentum()
        apply = inner.apply_gradients
        cast_pairs = lambda pairs: [(tf.cast(g, v.dtype), v) for g, v in pairs]  # noqa: E731
        inner.apply_gradients = lambda pairs, *rest: apply(cast_pairs(pairs))
        return OUTPUT(inner, loss)

    options = {"reduction_method": method, "gradient_accumulation_dtype": tf.float32}
    _, half, _ = run(pipelined(reduction_method=method))
    _, plain_half, _ = run(plain(8, reduction_method=method), ipus=1)
    _, single, _ = run(pipelined(optimizer_function=cast, **options))
    for a, b in zip(half, plain_half, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any((a != b).any() for a, b in zip(half, single, strict=True))


@pytest.mark.source("S3-16")
def test_eight_ipus_run_two_replicas_with_equal_weights():
    def average(loss):
        return OUTPUT(ipu.optimizers.CrossReplicaOptimizer(momentum()), loss)

    losses, _, used = run(pipelined(optimizer_function=average), ipus=8)
    assert used.replicas == 2
    assert np.shape(losses) == (32, 2)
    with pytest.raises(ValueError, match="n_ipus=6 is no multiple of the 4 IPUs"):
        run(pipelined(), ipus=6)


@pytest.mark.source("graphcore/keras, extensions_base.py, _get_replication_factor")
@pytest.mark.parametrize(("ipus", "replicas"), [(4, 1), (8, 2), (3, 1)])
def test_three_stages_take_four_ipus(ipus, replicas):
    """Shards of a program are a power of two; three IPUs alone hold it too."""

    def program():
        queue = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        stages = [lambda: tf.constant(1.0), lambda a: a * 2, lambda a: a + 1]
        ipu.pipelining_ops.pipeline(stages, gradient_accumulation_count=6, outfeed_queue=queue)

    with machine(), session():
        used = configured(ipus)
        ipu.ipu_compiler.compile(program)
        assert (used.replicas, used.taken) == (replicas, 3)


def test_losses_masks_and_sums_leave_by_the_outfeed():
    def two(x, y):
        loss = last(x, y)
        return loss, 2 * loss

    def of_two(loss, _):
        return OUTPUT(momentum(), loss)

    stages = [*STAGES[:-1], two]
    both, _, _ = run(pipelined(stages=stages, optimizer_function=of_two))
    named = {"stages": stages, "optimizer_function": of_two}
    loss, _, _ = run(pipelined(outfeed_loss=True, **named))
    second, _, _ = run(pipelined(outfeed_mask=[True, False], **named))
    np.testing.assert_array_equal(loss, both[0])
    np.testing.assert_array_equal(second, both[1])
    sums, _, _ = run(
        pipelined(outfeed_loss=True, accumulate_outfeed=True, accumulate_outfeed_dtype=tf.float32,
                  **named)
    )
    assert sums.dtype == np.float32
    np.testing.assert_array_equal(sums, np.float32(loss).reshape(4, 8).sum(axis=1))


@pytest.mark.parametrize("dtype", [None, tf.float32])
def test_two_outputs_are_accumulated_each(dtype):
    """Each sum is that of its own output, in its own accumulator: one is a vector."""

    def two(x, y):
        loss = last(x, y)
        return loss, tf.stack([loss, 2 * loss])

    def of_two(loss, _):
        return OUTPUT(momentum(), loss)

    named = {"stages": [*STAGES[:-1], two], "optimizer_function": of_two}
    (losses, pairs), weights, _ = run(pipelined(**named))
    options = {"accumulate_outfeed": True, "accumulate_outfeed_dtype": dtype}
    (loss_sums, pair_sums), same, _ = run(pipelined(**options, **named))
    kind = losses.dtype if dtype is None else np.float32
    assert (loss_sums.dtype, pair_sums.dtype) == (kind, kind)
    for sums, values in ((loss_sums, losses), (pair_sums, pairs)):
        expected = np.zeros(sums.shape, kind)
        for i in range(8):  # one mini-batch after the other
            expected = expected + values.reshape(4, 8, *sums.shape[1:])[:, i].astype(kind)
        np.testing.assert_array_equal(sums, expected)
    for a, b in zip(same, weights, strict=True):
        np.testing.assert_array_equal(a, b)
    only, _, _ = run(pipelined(outfeed_mask=[True, False], **options, **named))
    np.testing.assert_array_equal(only, pair_sums)


def test_inference_sends_what_the_last_stage_gives():
    def logits(x, y):
        return dense(x, 4, "last")

    stages = [*STAGES[:2], logits]
    actual, _, _ = run(pipelined(6, stages, optimizer_function=None), ipus=3, launches=1)
    assert np.shape(actual) == (12, 4, 4)
    assert last_plan().training is False


def test_concurrent_stages_get_the_same_arguments_and_their_outputs_follow_each_other():
    def left(x, y):
        return dense(x, 8, "left"), y

    def right(x, y):
        return dense(x, 8, "right")

    def join(a, y, b):
        return last(tf.concat([a, b], 1), y)

    stages = [hidden("first"), [left, right], join]
    losses, weights, _ = run(pipelined(6, stages, device_mapping=[0, [1, 2], 3]), launches=1)
    assert len(losses) == 12
    assert len(weights) == 4
    shared = [hidden("first"), [left, lambda x, y: dense(x, 8, "left")], join]
    with pytest.raises((ValueError, AttributeError), match="left"):
        run(pipelined(6, shared, device_mapping=[0, [1, 2], 3]))


@pytest.mark.source("S0-32")
def test_outputs_need_an_outfeed():
    with pytest.raises(ValueError, match=r"last computational stage has tensor outputs: .*outfeed"):
        run(pipelined(outfeed_queue=None))


def test_tensors_from_outside_are_refused():
    def build(infeed, outfeed):
        rate = tf.constant(0.1, tf.float16) * 2
        stages = [lambda x, y: (x * rate, y), *STAGES[1:]]
        return pipelined(stages=stages)(infeed, outfeed)

    with pytest.raises(ValueError, match=r"Trying to capture the tensor .* not a resource"):
        run(build)


def test_stages_that_share_a_variable_lie_on_one_ipu():
    def tied(x, y):
        with tf.compat.v1.variable_scope("", reuse=True):
            return tf.nn.relu(dense(x, 16, "second")), y

    stages = [STAGES[0], STAGES[1], tied, last]
    _, weights, _ = run(pipelined(stages=stages, device_mapping=[0, 1, 1, 0]), ipus=2, launches=1)
    assert len(weights) == 3
    sentence = "variable second is used by stage 1 on IPU 1 and by stage 2 on IPU 2; map them to"
    with pytest.raises(ValueError, match=sentence):
        run(pipelined(stages=stages), launches=1)


@pytest.mark.source("S0-37")
def test_inputs_are_constant_through_a_run():
    """A factor that is an argument of the run gives the bits of one that stands in the stage."""

    def factor(rate, x, y):
        return STAGES[0](rate * x, y)

    def build(infeed, outfeed):
        inputs = [tf.constant(2.0, tf.float16)]
        return pipelined(stages=[factor, *STAGES[1:]], inputs=inputs)(infeed, outfeed)

    losses, weights, _ = run(build, launches=1)
    within = [lambda x, y: factor(tf.constant(2.0, tf.float16), x, y), *STAGES[1:]]
    expected, others, _ = run(pipelined(stages=within), launches=1)
    np.testing.assert_array_equal(losses, expected)
    assert all((a == b).all() for a, b in zip(weights, others, strict=True))
    assert len(set(losses.tolist())) > 8, "the infeed's elements differ"


@pytest.mark.source("S0-38")
def test_a_stage_sees_nothing_but_what_the_one_before_hands_on():
    def forgetful(x, y):
        return tf.nn.relu(dense(x, 16, "second"))

    with pytest.raises(TypeError, match="missing 1 required positional argument: 'y'"):
        run(pipelined(stages=[STAGES[0], forgetful, *STAGES[2:]]), launches=1)


@pytest.mark.source("S0-39")
def test_an_optimiser_comes_from_its_function_alone():
    def early(x, y):
        return OUTPUT(momentum(), last(x, y))

    sentence = "stage 3 returns OptimizerFunctionOutput; return it from optimizer_function"
    with pytest.raises(TypeError, match=sentence):
        run(pipelined(stages=[*STAGES[:3], early]), launches=1)
    with pytest.raises(TypeError, match="must return OptimizerFunctionOutput, got "):
        run(pipelined(optimizer_function=lambda loss: loss), launches=1)


@pytest.mark.source("S0-45")
def test_stages_side_by_side_are_a_shorter_pipeline_that_keeps_less():
    def join(a, y, b):
        return last(tf.concat([a, b], 1), y)

    def right(x, y):
        return tf.nn.relu(dense(x, 8, "right"))

    run(pipelined(6, [STAGES[0], [STAGES[1], right], join], device_mapping=[0, [1, 2], 3]))
    short = last_plan()
    run(pipelined(8))
    serial = last_plan()
    assert len(short.ipus) == len(serial.ipus) == 4
    assert (short.latency, serial.latency) == (6, 8)
    assert (sum(short.stash.held), sum(serial.stash.held)) == (9, 16)


def test_an_optimiser_that_accumulates_has_no_place_inside():
    def twice(loss):
        inner = ipu.optimizers.GradientAccumulationOptimizerV2(momentum(), 2)
        return OUTPUT(inner, loss)

    with pytest.raises(ValueError, match="GradientAccumulationOptimizerV2 inside a pipeline"):
        run(pipelined(optimizer_function=twice))


def test_checkpoints_change_nothing():
    assert recomputation_checkpoint({"x": tf.constant(3.0)})["x"] == 3.0
    assert RecomputationMode.Auto.name == "Auto"
    assert X.dtype == np.float16


def test_checkpoints_need_a_schedule_that_recomputes_from_them():
    def first(x, y):
        x, y = STAGES[0](x, y)
        return recomputation_checkpoint(x), y

    stages = [first, *STAGES[1:]]
    with pytest.raises(ValueError, match="pipeline_schedule=Interleaved on 4 IPUs: with a recomp"):
        run(pipelined(stages=stages, pipeline_schedule=PipelineSchedule.Interleaved),
            recompute=True)
