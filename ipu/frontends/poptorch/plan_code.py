"""A plan as PopTorch's own code: options, and where blocks begin."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ipu.plan.plan import Plan
from ipu.plan.schedule import Schedule

__all__ = ["plan_code"]

_SETTERS = {
    "activations": "setActivationLocation", "weights": "setWeightLocation",
    "state": "setOptimizerLocation", "accumulators": "setAccumulatorLocation",
}


def plan_code(plan: Plan, begins: Sequence[str] | None, model: str = "model") -> str:
    """Lines that make this plan of a model, for its script.

    begins    paths of the modules that begin a stage, but for the first; None: blocks are left
              to the reader.

    >>> print(plan_code(Plan([abs, abs], schedule="popart", count=4, offload=()), ["layers.2"]))
    poptorch.removeBlocks(model)
    poptorch.BeginBlock(model, "stage0", ipu_id=0)
    poptorch.BeginBlock(model.layers[2], "stage1", ipu_id=1)
    options = poptorch.Options()
    options.Training.gradientAccumulation(4)
    options.setExecutionStrategy(poptorch.PipelinedExecution(poptorch.AutoStage.AutoIncrement))
    <BLANKLINE>
    """
    ipus = [place[0] for place in plan.places]
    modules = [model, *(_path(model, name) for name in begins or ())]
    has_blocks = plan.n_stages > 1 and begins is not None
    lines = [f"poptorch.removeBlocks({model})"] * has_blocks + [
        f'poptorch.BeginBlock({module}, "stage{number}", ipu_id={ipu})'
        for number, (module, ipu) in enumerate(zip(modules, ipus, strict=False)) if has_blocks
    ]
    lines.append("options = poptorch.Options()")
    if plan.replicas > 1:
        lines.append(f"options.replicationFactor({plan.replicas})")
    if plan.count > 1:
        lines.append(f"options.Training.gradientAccumulation({plan.count})")
    if plan.n_stages > 1:
        is_pipeline = plan.schedule is Schedule.POPART
        strategy = "PipelinedExecution" if is_pipeline else "ShardedExecution"
        lines.append(
            f"options.setExecutionStrategy(poptorch.{strategy}(poptorch.AutoStage.AutoIncrement))"
        )
    wanted = (max(ipus) + 1) * plan.replicas
    if wanted & (wanted - 1):
        lines.append("options.autoRoundNumIPUs(True)")
    for kind, setter in _SETTERS.items():
        settings = ""
        if kind in plan.offloaded:
            settings += ".useOnChipStorage(False)"
        if kind == "state" and plan.shard_state:
            settings += ".useReplicatedTensorSharding(True)"
        if settings:
            lines += [
                f"options.TensorLocations.{setter}(",
                f"    poptorch.TensorLocationSettings(){settings})",
            ]
    return "\n".join([*lines, ""])


def _path(model: str, name: str) -> str:
    """A module of the model, with numbers of lists in brackets."""
    return re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", f"{model}.{name}")
