"""What the statistics of operands in blocks speak for: layers, headroom, rules, 2-D, transforms.

Each rule reads a run's report and proposes ways; whether they help is tried, not known.

Source    docs/block-scaled.md (what each figure means); the thresholds are ours, ASSUMED.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fpsim.records.recipes import Recipe, find_recipe
from ipu.learn.policy import LayerPolicies, with_layer
from ipu.run.ways import Way

__all__ = ["BlockItem", "find_block_advice"]

Row = Mapping[str, Any]

#: Decibels below the median of its kind from which a layer is worth a word.
_BELOW = 3.0
#: Decibels between two kinds of operands that are worth one.
_APART = 1.0
#: Share of an operand that is.
_NOTABLE = 0.001
#: Below this a weight in other blocks is another weight.
_COARSE = 25.0
#: Layers that one item names.
_LAYERS = 3


class BlockItem(NamedTuple):
    """One item: as `ipu.run.advice.Advice`, whose fields these are."""

    what: str
    evidence: str
    layer: str
    ways: tuple[Way, ...]


def find_block_advice(report: Mapping[str, Any], base: Way) -> list[BlockItem]:
    """The items of a report, the most urgent first; none where nothing is in blocks.

    base    the way of the report's run.
    """
    rows, recipe = report.get("operands", ()), base.policy.default.recipe
    if recipe is None or not rows:
        return []
    rules = (_zero_scales, _lag, _clipping, _layers, _weights, _transforms, _stochastic)
    return [item for rule in rules for item in rule(rows, base, recipe) if item.ways]


def _snr(row: Row) -> float:
    """Infinite where nothing was lost."""
    return math.inf if row["snr"] is None else float(row["snr"])


def _median(rows: Sequence[Row]) -> float:
    return statistics.median(map(_snr, rows)) if rows else math.inf


def _of(rows: Sequence[Row], product: str, operand: str = "") -> list[Row]:
    return [r for r in rows if r["product"] == product and operand in ("", r["operand"])]


def _named(row: Row) -> str:
    return f"{row['operand']} of {row['layer']} ({row['product'].replace('_', ' ')})"


# Ways -------------------------------------------------------------------------------------------


def _with_recipe(base: Way, name: str) -> tuple[Way, ...]:
    """The base with another recipe for layers without a policy of their own; none for no recipe."""
    policy, present = base.policy, base.policy.default.recipe
    try:
        recipe = find_recipe(name)
    except ValueError:
        return ()
    if present is not None and replace(recipe, name=present.name) == present:
        return ()
    changed = replace(policy.default, recipe=recipe)
    whole = LayerPolicies(changed, policy.layers) if isinstance(policy, LayerPolicies) else changed
    return (replace(base, policy=whole),)


def _added(base: Way, recipe: Recipe, addition: str) -> tuple[Way, ...]:
    return _with_recipe(base, f"{recipe}+{addition}")


def _without(base: Way, recipe: Recipe, suffix: str) -> tuple[Way, ...]:
    name, plus, additions = str(recipe).partition("+")
    return _with_recipe(base, f"{name}{suffix}{plus}{additions}")


def _plain_layers(base: Way, layers: Sequence[str]) -> tuple[Way, ...]:
    """The base with these layers out of blocks."""
    policy = base.policy
    for layer in layers:
        policy = with_layer(policy, layer, replace(base.policy.default, recipe=None))
    return (replace(base, policy=policy),) if layers else ()


# Rules ------------------------------------------------------------------------------------------


def _zero_scales(rows: Sequence[Row], base: Way, recipe: Recipe) -> Iterator[BlockItem]:
    worst = max(rows, key=lambda r: float(r["zero_scale"]))
    if worst["zero_scale"] >= _NOTABLE:
        yield BlockItem(
            f"Keep {worst['layer']} out of blocks",
            f"{worst['zero_scale']:.1%} of the numbers of {_named(worst)} stand under a zero scale "
            "and are lost", worst["layer"], _plain_layers(base, [worst["layer"]]),
        )


def _lag(rows: Sequence[Row], base: Way, recipe: Recipe) -> Iterator[BlockItem]:
    delayed = [r for r in rows if r["lag"] is not None] if recipe.history is not None else []
    if not delayed:
        return
    worst = max(delayed, key=lambda r: float(r["lag"][1]))
    if worst["lag"][1] > 1:
        yield BlockItem(
            "Scale by the tensors as they are",
            f"the delayed scale of {_named(worst)} was behind: its largest magnitude was "
            f"{worst['lag'][1]:.3g} times what the scale leaves room for, and saturated",
            worst["layer"], _with_recipe(base, str(recipe).replace("delayed", "current")),
        )


def _clipping(rows: Sequence[Row], base: Way, recipe: Recipe) -> Iterator[BlockItem]:
    blocks = [r for r in rows if r["lag"] is None]
    worst = max(blocks, key=lambda r: float(r["clipped"]), default=None)
    if worst is None or worst["clipped"] < _NOTABLE:
        return
    yield BlockItem(
        "Give scales headroom, or another rule",
        f"{worst['clipped']:.1%} of the numbers of {_named(worst)} were cut to the largest value, "
        f"gain {worst['gain']:.4f}", worst["layer"],
        (*_added(base, recipe, "rule=rceil"), *_added(base, recipe, "headroom=17/16")),
    )


def _layers(rows: Sequence[Row], base: Way, recipe: Recipe) -> Iterator[BlockItem]:
    """Greedily, by the weight gradient's operands."""
    of_weights = _of(rows, "weight_gradient") or list(rows)
    median = _median(of_weights)
    weak = sorted((r for r in of_weights if _snr(r) < median - _BELOW), key=_snr)
    layers = list(dict.fromkeys(str(r["layer"]) for r in weak))[:_LAYERS]
    if layers:
        yield BlockItem(
            f"Keep {', '.join(layers)} out of blocks",
            f"{_named(weak[0])} has {_snr(weak[0]):.1f} dB of signal to noise, the median is "
            f"{median:.1f} dB", layers[0],
            tuple(w for n in range(1, len(layers) + 1) for w in _plain_layers(base, layers[:n])),
        )
    forward, backward = _median(_of(rows, "forward")), _median(_of(rows, "weight_gradient"))
    if backward < forward - _APART:
        yield BlockItem(
            "Keep weight gradients out of blocks",
            f"their operands have {backward:.1f} dB of signal to noise, those of the forward pass "
            f"{forward:.1f} dB", "", _added(base, recipe, "wgrad=bf16"),
        )


def _weights(rows: Sequence[Row], base: Way, recipe: Recipe) -> Iterator[BlockItem]:
    forward, backward = _of(rows, "forward", "w"), _of(rows, "input_gradient", "w")
    rule = recipe.forward
    if not (forward and backward and rule is not None and rule.right.block.rows == 1):
        return
    if _median(forward) < _COARSE:
        yield BlockItem(
            "Try square blocks for weights",
            f"blocks in one dimension are others in the backward pass, which sees other weights: "
            f"{_median(forward):.1f} and {_median(backward):.1f} dB of signal to noise", "",
            _added(base, recipe, "2d"),
        )


def _transforms(rows: Sequence[Row], base: Way, recipe: Recipe) -> Iterator[BlockItem]:
    rule = recipe.weight_gradient
    turned, plain = _of(rows, "weight_gradient", "x"), _of(rows, "forward", "x")
    if rule is None or not (turned and plain):
        return
    apart = _median(turned) - _median(plain)
    evidence = (
        f"activations have {_median(turned):.1f} dB of signal to noise in the weight gradient and "
        f"{_median(plain):.1f} dB in the forward pass"
    )
    if rule.right.transform is None and apart < -_APART:
        yield BlockItem(
            "Try a Hadamard transform of the weight gradient's operands", evidence, "",
            _added(base, recipe, "rht16"),
        )
    elif rule.right.transform is not None and apart <= _APART:
        yield BlockItem(
            "Try without the transform", evidence, "", _without(base, recipe, "-rht")
        )


def _stochastic(rows: Sequence[Row], base: Way, recipe: Recipe) -> Iterator[BlockItem]:
    slopes, forward = _of(rows, "input_gradient", "dy"), _of(rows, "forward", "x")
    if recipe.is_stochastic and slopes and _median(slopes) < _median(forward) - _APART:
        yield BlockItem(
            "Try gradients to nearest",
            f"rounded stochastically they have {_median(slopes):.1f} dB of signal to noise, "
            f"activations to nearest {_median(forward):.1f} dB", "",
            _without(base, recipe, "-sr"),
        )
