"""Statistics of a program: what metrics compute, and the variables that hold them.

Nodes of a metric carry the mark `metric` with its name, and so does what functions compute that
they call. Their layer is `metrics/NAME`, and their policy is binary32 unless a pattern of the
program's policy matches that name.

A variable that a loss is multiplied by holds its scale, which is binary32 too.

Source    docs/tensorflow.md (Which numbers).
"""

from __future__ import annotations

from typing import Any

from ipu.frontends.tensorflow.engine.functions import called_graphs
from ipu.frontends.tensorflow.engine.losses import scale_inputs, scale_readers
from ipu.frontends.tensorflow.engine.program import program_of
from ipu.frontends.tensorflow.engine.writes import origin_of
from ipu.learn.patterns import matches
from ipu.learn.policy import FP32, LayerPolicies, Policy

__all__ = ["METRICS", "layer_of_metric", "policy_of_metric", "statistics_of"]

#: How the layers of metrics begin.
METRICS = "metrics/"


def layer_of_metric(name: str) -> str:
    """The layer under which a metric counts.

    >>> layer_of_metric("accuracy")
    'metrics/accuracy'
    """
    return f"{METRICS}{name}"


def policy_of_metric(policy: Policy | LayerPolicies, name: str) -> Policy:
    """Formats of a metric: binary32, or those of a pattern that matches its layer.

    >>> from ipu.learn.policy import FP16
    >>> print(policy_of_metric(FP16, "loss"))
    p=f32,c=f32,part=f32
    >>> policy_of_metric(FP16.override({"metrics/loss": FP16}), "loss") == FP16
    True
    """
    layer = layer_of_metric(name)
    layers = policy.layers if name and isinstance(policy, LayerPolicies) else ()
    return next((named for pattern, named in layers if matches(layer, pattern)), FP32)


def statistics_of(graph: Any, metric: str = "") -> dict[int, str]:
    """Inputs of a graph that are handles of a metric's variables, or loss scales.

    Names of metrics by position; "" for a scale, which no policy names.

    metric    whose function the graph is; "" for none.
    """
    program = program_of(graph)
    by_metric: dict[str, dict[int, str]] = program.__dict__.setdefault("statistics", {})
    if metric not in by_metric:
        by_metric[metric] = _find(graph, metric)
    return by_metric[metric]


def _find(graph: Any, metric: str) -> dict[int, str]:
    positions = {tensor.op.name: i for i, tensor in enumerate(graph.inputs)}
    scales = {op.name for op in scale_readers(graph)}
    names: dict[int, str] = {}
    for op in scale_inputs(graph):
        if op.name in positions:
            names[positions[op.name]] = ""
    for node in program_of(graph).nodes:
        name = str(node.marks.get("metric", metric))
        held = [(tensor, name) for tensor in node.inputs if name and node.is_update]
        if node.name in scales:
            held.append((node.inputs[0], ""))
        for called, first in called_graphs(node):
            held += [(node.inputs[first + i], n) for i, n in statistics_of(called, name).items()]
        for tensor, of in held:
            origin = origin_of(tensor)
            if origin in positions:
                names[positions[origin]] = of
    return names
