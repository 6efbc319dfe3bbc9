"""Advice from the statistics of operands in blocks: each rule fires on its evidence (golden)."""

from __future__ import annotations

import pytest

from ipu.run.block_advice import find_block_advice
from ipu.run.ways import Way

OPERANDS = [("forward", "x"), ("forward", "w"), ("input_gradient", "dy"), ("input_gradient", "w"),
            ("weight_gradient", "dy"), ("weight_gradient", "x")]


def report(**changes):
    """Three layers of 20 dB everywhere; a change is LAYER_PRODUCT_OPERAND={field: value}."""
    rows = [
        {"layer": layer, "product": product, "operand": operand, "snr": 20.0, "gain": 0.99,
         "clipped": 0.0, "flushed": 0.0, "zero_scale": 0.0, "lag": None}
        for layer in "abc" for product, operand in OPERANDS
    ]
    for row in rows:
        for key in (f"{row['product']}_{row['operand']}",
                    f"{row['layer']}_{row['product']}_{row['operand']}"):
            row.update(changes.get(key, {}))
    return {"operands": rows}


def ways(way, **changes):
    items = find_block_advice(report(**changes), Way.parse(way))
    return [str(w) for item in items for w in item.ways]


@pytest.mark.parametrize(("way", "changes", "proposed"), [
    ("nvfp4-plain", {"b_weight_gradient_dy": {"snr": 12.0}}, "nvfp4-plain+b=bf16-mixed"),
    ("nvfp4-plain", {"a_forward_x": {"zero_scale": 0.02}}, "nvfp4-plain+a=bf16-mixed"),
    ("nvfp4-plain", {"a_forward_x": {"clipped": 0.01}}, "nvfp4-plain+headroom=17/16"),
    ("mxfp4", {"a_forward_x": {"clipped": 0.01}}, "mxfp4+rule=rceil"),
    ("nvfp4-plain", {}, "nvfp4-plain+2d"),
    ("nvfp4-plain", {"weight_gradient_x": {"snr": 17.0}}, "nvfp4-plain+rht16"),
    ("nvfp4-plain", {"weight_gradient_x": {"snr": 17.0}, "weight_gradient_dy": {"snr": 17.0}},
     "nvfp4-plain+wgrad=bf16"),
    ("nvfp4+c=f32", {}, "nvfp4-rht+c=f32"),
    ("nvfp4", {"input_gradient_dy": {"snr": 17.0}}, "nvfp4-sr"),
    ("fp8-delayed", {"a_forward_x": {"lag": [0.5, 1.2]}}, "fp8-current"),
])
def test_a_way_is_proposed_where_its_figure_is_there(way, changes, proposed):
    assert proposed in ways(way, **changes)
    assert Way.parse(proposed) is not None


def test_nothing_is_proposed_without_evidence_or_blocks():
    clean = {f"{p}_{o}": {"snr": 31.0} for p, o in OPERANDS}
    assert ways("mxfp8", **clean) == []
    assert ways("fp8-delayed", **{k: v | {"lag": [0.3, 0.9]} for k, v in clean.items()}) == []
    assert ways("fp32") == ways("mxfp8", **{k: {"snr": None} for k in clean}) == []
    assert find_block_advice({"operands": []}, Way.parse("nvfp4")) == []


def test_layers_come_out_of_blocks_one_after_the_other_the_worst_first():
    proposed = ways("nvfp4-plain",
                 a_weight_gradient_x={"snr": 10.0}, b_weight_gradient_x={"snr": 12.0})
    assert proposed[:2] == ["nvfp4-plain+a=bf16-mixed", "nvfp4-plain+a=bf16-mixed+b=bf16-mixed"]
