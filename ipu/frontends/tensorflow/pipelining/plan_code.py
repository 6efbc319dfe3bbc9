"""A plan as TensorFlow's own code: the arguments of `pipelining_ops.pipeline`, and the config."""

from __future__ import annotations

from collections.abc import Sequence

from ipu.plan.plan import Plan
from ipu.plan.schedule import Schedule

__all__ = ["plan_code"]

_MODES = {
    "then": "RecomputeThenBackpropagate", "interleaved": "RecomputeAndBackpropagateInterleaved",
}
_OFFLOADS = {
    "state": "offload_weight_update_variables", "activations": "offload_activations",
    "accumulators": "offload_gradient_accumulation_buffers", "weights": "offload_weights",
}


def plan_code(plan: Plan, stages: Sequence[str]) -> str:
    """Lines that make this plan of a program's stages.

    stages    expressions of the computational stages.

    >>> code = plan_code(Plan([abs, abs], count=4, offload=("state",)), ["first", "second"])
    >>> code.splitlines()[3:6]
    ['    computational_stages=[first, second],', '    gradient_accumulation_count=4,', \
'    device_mapping=[0, 1],']
    """
    lines = [f"config.auto_select_ipus = {plan.n_ipus}"]
    if plan.n_stages == 1:
        return "\n".join([*lines, *_of_one_stage(plan), ""])
    lines.append(f"config.allow_recompute = {bool(plan.recomputation)}")
    lines += [
        "pipelining_ops.pipeline(",
        f"    computational_stages=[{', '.join(stages)}],",
        f"    gradient_accumulation_count={plan.count},",
        f"    device_mapping={[place[0] for place in plan.places]},",
        "    pipeline_schedule=pipelining_ops.PipelineSchedule."
        f"{Schedule.parse(plan.schedule).value.capitalize()},",
    ]
    if plan.recomputation:
        mode = _MODES[plan.recomputation]
        lines.append(f"    recomputation_mode=pipelining_ops.RecomputationMode.{mode},")
    lines += [f"    {name}={kind in plan.offloaded}," for kind, name in _OFFLOADS.items()]
    if plan.shard_state:
        lines.append("    replicated_optimizer_state_sharding=True,")
    return "\n".join([*lines, "    # … and the other arguments as they are", ")", ""])


def _of_one_stage(plan: Plan) -> list[str]:
    """One stage is no pipeline: its optimiser accumulates."""
    name = "CrossReplicaGradientAccumulationOptimizerV2"
    return [
        "optimizer = gradient_accumulation_optimizer."
        f"{name if plan.replicas > 1 else name.removeprefix('CrossReplica')}(",
        f"    optimizer, num_mini_batches={plan.count},",
        f"    offload_weight_update_variables={'state' in plan.offloaded},",
        f"    replicated_optimizer_state_sharding={plan.shard_state})",
    ]
