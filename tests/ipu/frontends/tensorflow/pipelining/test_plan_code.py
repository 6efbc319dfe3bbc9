"""A plan as TensorFlow code: the pipeline that it makes has that plan (law)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ipu.plan.plan import Plan
from tests.ipu.frontends.tensorflow.framework import ipu

_ROOM = "ipu.frontends.tensorflow"
planned = pytest.importorskip(f"{_ROOM}.pipelining.checks").planned
plan_code = pytest.importorskip(f"{_ROOM}.pipelining.plan_code").plan_code
system = pytest.importorskip(f"{_ROOM}.settings.system")



@pytest.mark.parametrize("plan", [
    Plan([abs] * 2, count=4, offload=("state",)),
    Plan([abs] * 3, count=12, recompute="then", offload=()),
    Plan([abs] * 3, count=6, recompute="interleaved", offload=("weights", "accumulators")),
    Plan([abs] * 2, count=2, schedule="interleaved", recompute="then", offload=("activations",)),
    Plan([abs] * 3, mapping=[0, 1, 0], count=3, schedule="sequential", offload=()),
])
def test_the_code_of_a_plan_makes_that_plan(plan, monkeypatch):
    asked, config = {}, SimpleNamespace()
    ops = ipu.pipelining_ops
    names = SimpleNamespace(
        pipeline=lambda **arguments: asked.update(arguments),
        PipelineSchedule=ops.PipelineSchedule, RecomputationMode=ops.RecomputationMode,
    )
    exec(plan_code(plan, ["abs"] * plan.n_stages), {"pipelining_ops": names, "config": config})
    assert config.auto_select_ipus == plan.n_ipus
    monkeypatch.setattr(system, "is_configured", lambda: True)
    monkeypatch.setattr(
        system, "current",
        lambda: SimpleNamespace(recompute=config.allow_recompute, overlapping_tiles=0),
    )
    written = planned(
        asked["computational_stages"], asked["device_mapping"], asked["pipeline_schedule"],
        asked["gradient_accumulation_count"], asked.get("recomputation_mode"),
        asked["offload_weight_update_variables"],
        {
            "activations": asked["offload_activations"], "weights": asked["offload_weights"],
            "accumulators": asked["offload_gradient_accumulation_buffers"],
        },
        training=True,
    )
    assert written.programs == plan.programs
    assert written.offloaded == plan.offloaded
    assert written.places == plan.places


def test_one_stage_accumulates_in_its_optimiser():
    means = []

    class Names:
        @staticmethod
        def GradientAccumulationOptimizerV2(optimizer, **arguments):
            means.append(("alone", arguments))

        @staticmethod
        def CrossReplicaGradientAccumulationOptimizerV2(optimizer, **arguments):
            means.append(("replicas", arguments))

    for replicas in (1, 2):
        plan = Plan(
            [abs], count=4, replicas=replicas, offload=("state",), shard_state=replicas > 1,
        )
        config = SimpleNamespace()
        exec(plan_code(plan, ["abs"]), {
            "config": config, "optimizer": None, "gradient_accumulation_optimizer": Names,
        })
        assert config.auto_select_ipus == replicas
    assert means == [
        (name, {"num_mini_batches": 4, "offload_weight_update_variables": True,
                "replicated_optimizer_state_sharding": name == "replicas"})
        for name in ("alone", "replicas")
    ]
