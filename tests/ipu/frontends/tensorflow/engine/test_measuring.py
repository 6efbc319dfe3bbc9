"""What programs cost, from their own graphs: bytes by hand, cycles, placement (golden, law)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ipu.frontends.tensorflow.engine.measuring import _stage
from ipu.frontends.tensorflow.pipelining.checks import planned
from ipu.frontends.tensorflow.pipelining.options import PipelineSchedule
from ipu.plan.cycles import timeline
from ipu.plan.memory import always_live, lives, peaks, remote_bytes, transfers
from ipu.plan.schedule import Phase
from tests.ipu.frontends.tensorflow.framework import configured, current, ipu, launch, machine, tf
from tests.ipu.frontends.tensorflow.keras.test_functions import data
from tests.ipu.frontends.tensorflow.pipelining.networks import (
    STAGES,
    dense,
    last,
    momentum,
    pipelined,
    plain,
    run,
)

layers = tf.keras.layers


def costs(build, **options):
    """Of the only program of a run."""
    (account,) = run(build, launches=1, **options)[2].run.costs
    return account


def column(account, name):
    return [getattr(figures, name) for figures in account.figures]


@pytest.fixture(scope="module")
def four():
    return costs(pipelined())


@pytest.mark.source("S0-31")
def test_bytes_of_a_pipeline_are_those_of_its_tensors(four):
    """Micro-batches of 4: 8 features in binary16, labels of 4 bytes; then 16 features each."""
    assert (four.plan.places, four.plan.count) == (((0,), (1,), (2,), (3,)), 8)
    labels, first, hidden = 4 * 4, 4 * 8 * 2, 4 * 16 * 2
    assert column(four, "infeed_bytes") == [first + labels, 0, 0, 0]
    assert column(four, "input_bytes") == [first + labels, *[hidden + labels] * 3]
    assert column(four, "output_bytes") == [*[hidden + labels] * 3, 0]
    weights = [2 * n for n in (8 * 16, 16 * 16, 16 * 16, 16 * 4)]
    for name in ("parameter_bytes", "state_bytes", "accumulator_bytes"):
        assert column(four, name) == weights
    # Beside its inputs a stage keeps what relu gave; the last one the softmax, in binary32.
    saved_outputs = [hidden, hidden, hidden, 4 * 4 * 4]
    saved = [a + b for a, b in zip(column(four, "input_bytes"), saved_outputs, strict=True)]
    assert column(four, "saved_bytes") == saved
    assert column(four, "outfeed_bytes") == [0, 0, 0, 2]


def test_cycles_and_variables_do_not_depend_on_the_cut(four):
    one = costs(plain(8), ipus=1)
    assert one.plan.n_stages == 1
    for name in ("parameter_bytes", "state_bytes", "accumulator_bytes"):
        assert column(one, name) == [sum(column(four, name))]
    for name in ("forward_cycles", "backward_cycles"):
        assert 0 <= sum(column(four, name)) - column(one, name)[0] <= 4  # rounded up by stage
    assert all(cycles > 0 for cycles in column(four, "update_cycles"))


@pytest.mark.source("S0-26")
def test_replicas_are_those_that_run(four):
    def average(loss):
        inner = ipu.optimizers.CrossReplicaOptimizer(momentum())
        return ipu.pipelining_ops.OptimizerFunctionOutput(inner, loss)

    account = costs(pipelined(optimizer_function=average), ipus=8)
    assert (account.plan.replicas, len(account.plan.ipus)) == (2, 4)
    assert any(event.kind == "reduce" for event in timeline(*account))
    for name in ("forward_cycles", "backward_cycles"):  # those of one replica
        assert column(account, name) == column(four, name)


def test_a_node_without_a_mark_belongs_where_its_inputs_come_from():
    """Gradients of several stages are summed in the earliest, what follows runs in the latest."""
    inputs = [(Phase.BACKWARD, 2, 0), (Phase.BACKWARD, 1, 0), (Phase.FORWARD, 0, 0)]
    assert _stage(SimpleNamespace(direction="backward"), inputs, 3) == 1
    assert _stage(SimpleNamespace(direction="backward"), inputs[2:], 3) == 0
    assert _stage(SimpleNamespace(direction="backward"), [], 3) == 3
    forward = [(Phase.FORWARD, 0, 0), (Phase.FORWARD, 2, 0)]
    assert _stage(SimpleNamespace(direction="forward"), forward, 3) == 2
    assert _stage(SimpleNamespace(direction="forward"), [], 3) == 0


def held(account):
    return sum(peak.bytes for peak in peaks(lives(*account)).values())


@pytest.mark.source("S0-47")
def test_recomputation_costs_time_and_saves_memory(four):
    again = costs(pipelined(), recompute=True)
    assert again.plan.recomputation == "then"
    assert held(again) < held(four)
    assert max(e.start + e.cycles for e in timeline(*again)) > max(
        e.start + e.cycles for e in timeline(*four)
    )


def test_schedules_hold_what_their_plans_say(four):
    by_name = {s: costs(pipelined(pipeline_schedule=s)) for s in PipelineSchedule}
    peaks_of = {schedule: held(account) for schedule, account in by_name.items()}
    assert peaks_of[PipelineSchedule.Grouped] == held(four)
    assert (
        peaks_of[PipelineSchedule.Sequential] < peaks_of[PipelineSchedule.Interleaved]
        < peaks_of[PipelineSchedule.Grouped]
    )




#: Which option moves which bytes of the account.
OFFLOADS = {
    "offload_activations": "activations", "offload_weights": "weights",
    "offload_gradient_accumulation_buffers": "accumulators",
}


@pytest.mark.source("S0-64", "S0-65", "S0-68")
@pytest.mark.filterwarnings("ignore:.*changes no bit:RuntimeWarning")
@pytest.mark.parametrize("option", OFFLOADS)
def test_offloaded_tensors_are_in_remote_memory(four, option):
    account, kind = costs(pipelined(**{option: True})), OFFLOADS[option]
    assert account.plan.offloaded == {"state", kind}
    assert set(remote_bytes(*four)) == {"state"}
    assert remote_bytes(*account)[kind] > 0
    assert sum(always_live(lives(*account)).values()) < sum(always_live(lives(*four)).values())
    assert {t.kind for t in transfers(*account)} == {"state", kind}


@pytest.mark.source("S0-66")
def test_a_state_on_the_chip_is_asked_for(four):
    here = costs(pipelined(offload_weight_update_variables=False))
    assert here.plan.offloaded == frozenset()
    assert remote_bytes(*four)["state"] == sum(column(four, "state_bytes"))
    assert sum(row.bytes for row in lives(*here) if row.kind == "state" and not row.slot) == sum(
        column(here, "state_bytes")
    )


@pytest.mark.source("S0-70", "S3-36")
@pytest.mark.filterwarnings("ignore:.*changes no bit:RuntimeWarning")
def test_a_sharded_state_is_there_in_parts():
    def average(loss):
        inner = ipu.optimizers.CrossReplicaOptimizer(momentum())
        return ipu.pipelining_ops.OptimizerFunctionOutput(inner, loss)

    named = {"optimizer_function": average}
    complete, parts = (
        costs(pipelined(replicated_optimizer_state_sharding=sharded, **named), ipus=8)
        for sharded in (False, True)
    )
    assert (complete.plan.shard_state, parts.plan.shard_state) == (False, True)
    assert remote_bytes(*parts)["state"] * 2 == remote_bytes(*complete)["state"]
    alone = costs(pipelined(replicated_optimizer_state_sharding=True))
    assert not alone.plan.shard_state


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.filterwarnings("ignore:.*changes no bit:RuntimeWarning")
def test_accumulating_optimisers_place_their_state(sharded):
    def own(**options):
        return costs(plain(8, **options), ipus=2 if sharded else 1)

    options = {"replicated_optimizer_state_sharding": True} if sharded else {}
    default = own(**options)
    assert default.plan.offloaded == {"state"}
    assert default.plan.shard_state is sharded
    assert own(offload_weight_update_variables=False).plan.offloaded == frozenset()


@pytest.mark.source("S0-51")
def test_masks_and_checkpoints_are_kept_by_recomputation():
    def dropped(x, y):
        x = tf.nn.relu(dense(x, 16, "first"))
        x = ipu.pipelining_ops.recomputation_checkpoint(tf.nn.dropout(x, rate=0.5, seed=1))
        return tf.nn.relu(dense(x, 16, "again")), y

    account = costs(pipelined(stages=[dropped, *STAGES[2:]], device_mapping=[0, 1, 2], count=6))
    mask, output = 4 * 16, 4 * 16 * 2
    assert account.figures[0].checkpoint_bytes in (mask + output, 2 * mask + output, 3 * output)
    assert account.figures[1].checkpoint_bytes == 0


def test_concurrent_stages_have_their_own_figures():
    def split(x, y):
        return tf.nn.relu(dense(x, 16, "first")), y

    def left(x, y):
        return tf.nn.relu(dense(x, 16, "left"))

    def right(x, y):
        return tf.nn.relu(dense(x, 8, "right")), y

    def meet(a, b, y):
        return last(tf.concat([a, b], 1), y)

    stages = [split, [left, right], meet]
    account = costs(pipelined(stages=stages, count=6, device_mapping=[0, [1, 2], 3]))
    assert [(e.stage, e.branch) for e in account.plan.entries] == [(0, 0), (1, 0), (1, 1), (2, 0)]
    assert column(account, "parameter_bytes") == [2 * n for n in (8 * 16, 16 * 16, 16 * 8, 24 * 4)]
    assert all(cycles > 0 for cycles in column(account, "backward_cycles"))


@pytest.mark.source("S3-01")
@pytest.mark.parametrize("category", ["matmuls", "convolutions"])
def test_a_small_share_of_memory_gives_more_steps_and_fewer_temporary_bytes(category):
    images, kernel = tf.ones((1, 64, 64, 16), tf.half), tf.ones((3, 3, 16, 16), tf.half)
    rows, weights = tf.ones((512, 256), tf.half), tf.ones((256, 512), tf.half)
    programs = {
        "matmuls": (tf.function(tf.matmul), rows, weights),
        "convolutions": (
            tf.function(lambda x, k: tf.nn.conv2d(x, k, 1, "SAME")), images, kernel,
        ),
    }

    def own(program, **shares):
        config = ipu.config.IPUConfig()
        config.auto_select_ipus = 1
        for name, share in shares.items():
            getattr(config, name).poplar_options = {"availableMemoryProportion": share}
        with machine():
            config.configure_ipu_system()
            launch(*programs[program])
            ((_, costs_of),) = current().run._costs.items()
            return costs_of.figures[0]

    usual, small = own(category), own(category, **{category: "0"})
    assert small.work_bytes < usual.work_bytes
    assert small.forward_cycles > usual.forward_cycles
    (other,) = programs.keys() - {category}
    assert own(other, **{category: "0"}) == own(other)


def test_the_infeed_tells_its_depth():
    def build(infeed, outfeed):
        infeed.prefetch_depth = 7
        return pipelined()(infeed, outfeed)

    assert costs(build).plan.prefetch == 7


@pytest.mark.source("S3-22")
@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.filterwarnings("ignore:io_tiles.num_io_tiles:RuntimeWarning")
def test_io_tiles_transfer_beside_the_stages_where_feeds_run_on_them(overlaps):
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = 4
    config.io_tiles.num_io_tiles = 33
    config.io_tiles.place_ops_on_io_tiles = overlaps
    with machine():
        config.configure_ipu_system()
        count = 10 if overlaps else 8
        plan = planned([abs] * 4, None, PipelineSchedule.Grouped, count, None, None, {},
                       training=True)
    assert plan.io_tiles == (34 if overlaps else 0)
    assert any(p.phase is Phase.INFEED for p in plan.programs) is overlaps


# Programs without a pipeline --------------------------------------------------------------------


def test_a_function_is_a_program_of_one_stage():
    weight = tf.Variable(tf.ones((8, 4)))
    with machine():
        configured()
        launch(tf.function(lambda x: tf.matmul(x, weight)), tf.ones((2, 8)))
        ((_, account),) = current().run._costs.items()
    (figures,) = account.figures
    assert not account.plan.training
    assert (figures.infeed_bytes, figures.outfeed_bytes) == (2 * 8 * 4, 2 * 4 * 4)
    assert figures.parameter_bytes == 8 * 4 * 4


def trained(build, change, ipus=2):
    with machine(), ipu.ipu_strategy.IPUStrategyV1().scope():
        configured(ipus)
        tf.keras.utils.set_random_seed(1)
        model = build()
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.Adam(0.1), loss, steps_per_execution=8)
        change(model)
        model.fit(data().take(8), verbose=0)
        model.evaluate(data().take(8), verbose=0)
        return current().run.costs


def net():
    return tf.keras.Sequential([
        layers.Dense(8, "relu", input_shape=(8,)), layers.Dense(8, "tanh"), layers.Dense(4),
    ])


def pipeline(**options):
    def change(model):
        model.set_pipeline_stage_assignment([0, 0, 1])
        model.set_pipelining_options(4, **options)

    return change


@pytest.mark.source("S0-31")
@pytest.mark.filterwarnings("ignore:.*changes no bit:RuntimeWarning")
def test_a_pipeline_of_keras_accounts_for_its_layers():
    options = {"offload_activations": True, "offload_weight_update_variables": False}
    training, evaluation = trained(net, pipeline(**options))
    assert training.plan.n_stages == evaluation.plan.n_stages == 2
    assert (training.plan.training, evaluation.plan.training) == (True, False)
    assert training.plan.offloaded == {"activations"}
    weights = [2 * (64 + 8) * 4, (32 + 4) * 4]
    assert column(training, "accumulator_bytes") == weights
    assert column(training, "state_bytes") == [2 * n for n in weights]  # Adam has two
    assert column(training, "input_bytes")[1] == column(training, "output_bytes")[0]
    assert all(cycles > 0 for cycles in column(training, "backward_cycles"))


@pytest.mark.source("S0-71")
@pytest.mark.filterwarnings("ignore:.*changes no bit:RuntimeWarning")
def test_accumulation_of_keras_is_a_plan_of_one_stage_on_each_ipu():
    (training,) = trained(net, lambda model: model.set_gradient_accumulation_options(
        4, replicated_optimizer_state_sharding=True
    ))
    assert (training.plan.n_stages, training.plan.replicas, training.plan.count) == (1, 2, 4)
    assert training.plan.offloaded == {"state"}
    assert training.plan.shard_state


def test_a_training_without_accumulation_keeps_its_state_on_the_chip():
    (training,) = trained(net, lambda model: None, ipus=1)
    assert training.plan.offloaded == frozenset()
    weights = (2 * (64 + 8) + 32 + 4) * 4
    assert column(training, "state_bytes") == [2 * weights]
    assert column(training, "accumulator_bytes") == [0]


def test_programs_that_do_not_fit_are_refused_and_nothing_has_changed(monkeypatch):
    monkeypatch.setattr("ipu.plan.explain.capacity", lambda plan, target: 200)
    weight = tf.Variable(tf.ones((8, 8)), name="large")

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.matmul(x, weight))
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    x = tf.ones((2, 8))
    with machine():
        configured()
        with pytest.raises(tf.errors.ResourceExhaustedError) as refused:
            launch(step, x)
        text = str(refused.value.message)
        assert text.startswith("out of memory: the plan needs")
        assert "IPU 0" in text
        assert "large 256" in text
        assert text.endswith("check_memory=False to run it all the same")
        assert (weight.numpy() == 1).all()
    with machine(check_memory=False):
        configured()
        assert float(launch(step, x)) == 128
        assert (weight.numpy() == -1).all()


def test_models_of_keras_that_do_not_fit_are_refused(monkeypatch):
    monkeypatch.setattr("ipu.plan.explain.capacity", lambda plan, target: 2000)
    with pytest.raises(tf.errors.ResourceExhaustedError, match=r"out of memory.*IPU 0"):
        trained(net, pipeline(), ipus=2)


def test_measuring_moves_no_bit_and_ends(monkeypatch):
    from ipu.frontends.tensorflow.engine.interpret import FramePlan

    measured, weights, used = run(pipelined(), esr=True)
    assert all(program.measure is None for program in used.run._costs)
    monkeypatch.setattr(FramePlan, "begin_measuring", lambda self: None)
    plainly, others, _ = run(pipelined(), esr=True)
    assert (measured == plainly).all()
    assert all((a == b).all() for a, b in zip(weights, others, strict=True))


def test_a_report_tells_slots_time_and_memory():
    text = str(run(pipelined(), launches=1)[2].run.report())
    for words in ("4 stages on IPU 0 1 2 3, grouped, 15 slots", "utilisation", "IPU 3: peak",
                  "in remote memory: state", "micro-batches held between slots, by stage: 7 5 3 1"):
        assert words in text
