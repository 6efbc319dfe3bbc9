"""Policies that name recipes of blocks, and ways with additions to them (golden, corners)."""

from __future__ import annotations

import pytest

from fpsim import BFLOAT16, BINARY32
from fpsim.records.recipes import RECIPES, find_recipe
from fpsim.records.rounding import RNE, SR
from ipu.learn.policy import Policy
from ipu.learn.policy import find_policy as find_learn_policy
from ipu.run.options import RunOptions
from ipu.run.policies import find_policy
from ipu.run.ways import Way, parse_ways

WAYS = [
    *RECIPES, "mxfp4+sr34+rht64", "nvfp4+wgrad=bf16", "nvfp4+head=bf16-mixed", "nvfp4-rht-sr",
    "nvfp4+wgrad=bf16+blocks.*=mxfp8", "p=f32,c=f32,part=f32,recipe=nvfp4", "nvfp4+sr+head=f32",
    "p=f32,c=f32,part=f32,recipe=nvfp4+dgrad=bf16", "bf16-mixed+blocks.*=nvfp4",
]


@pytest.mark.parametrize("text", WAYS)
def test_ways_are_read_as_they_are_written(text):
    way = Way.parse(text)
    assert str(way) == text
    assert Way.parse(str(way)) == way


def test_a_recipe_is_a_policy_in_bfloat16_with_parameters_in_binary32():
    policy = find_policy("nvfp4")
    assert (policy.param, policy.compute, policy.recipe) == (
        BINARY32, BFLOAT16, find_recipe("nvfp4"))
    assert find_learn_policy("nvfp4") == policy == Policy(compute=BFLOAT16, recipe="nvfp4")
    assert Policy.parse(str(policy)) == policy


def test_a_layer_takes_a_recipe_of_one_layer_alone():
    policy = find_policy({"head": "mxfp8+wgrad=bf16", "*": "f32"})
    assert policy.of("head") == find_policy("mxfp8+wgrad=bf16")
    assert policy.of("other").recipe is None
    with pytest.raises(ValueError, match=r"policy='nvfp4\+head=bf16' is of several layers"):
        find_policy({"head": "nvfp4+head=bf16"})


def test_lists_of_ways_with_recipes():
    text = "fp32,bf16,mxfp8,nvfp4,nvfp4-plain,mxfp4,p=f32,c=f32,recipe=mxfp8+head=f32"
    assert len(parse_ways(text)) == 7


def test_layers_beside_a_recipe_leave_blocks():
    policy = find_policy("nvfp4+wgrad=bf16+head=bf16+blocks.0=mxfp8")
    assert policy.of("head") == Policy(compute=BFLOAT16)
    assert policy.of("blocks.0").recipe == find_recipe("mxfp8")
    assert policy.of("blocks.1").recipe.weight_gradient is None
    assert find_policy({"*": "bf16-mixed", "a": "nvfp4+2d"}).of("a").recipe.name == "nvfp4+2d"


@pytest.mark.parametrize(("name", "product", "side", "expected"), [
    ("nvfp4-plain+dy=sr", "input_gradient", "left", ("nvfp4", SR(bits=8), None)),
    ("nvfp4-plain+dy=sr", "weight_gradient", "right", ("nvfp4", RNE, None)),
    ("mxfp4+sr34+rht64", "forward", "left", ("mxfp4", RNE, None)),
    ("mxfp4+sr34+rht64", "input_gradient", "right", ("mxfp4-34", SR(bits=8), "rht64")),
    ("nvfp4-sr", "weight_gradient", "left", ("nvfp4", RNE, "rht16")),
    ("nvfp4-rht", "weight_gradient", "right", ("nvfp4", RNE, None)),
    ("nvfp4-2d", "forward", "right", ("nvfp4", RNE, None)),
    ("nvfp4-plain+2d", "input_gradient", "right", ("nvfp4-2d", RNE, None)),
    ("nvfp4+46", "weight_gradient", "left", ("nvfp4", SR(bits=8), "rht16")),
    ("nvfp4+46", "forward", "left", ("nvfp4-46", RNE, None)),
    ("fp8-current", "weight_gradient", "left", ("e5m2-tensor", RNE, None)),
])
def test_what_additions_do_to_an_operand(name, product, side, expected):
    operand = getattr(getattr(find_recipe(name), product), side)
    transform = operand.transform and operand.transform.name
    assert (operand.block.name, operand.rounding, transform) == expected


@pytest.mark.parametrize(("text", "message"), [
    ("nvfp5", "policy item 'nvfp5' is not known; .* Did you mean 'nvfp4'"),
    ("nvfp4+rht8", "'rht8' is not known; use POLICY"),
    ("nvfp4+wgrad=f16", "recipe='nvfp4.wgrad=f16': wgrad=f16 is not known; use wgrad=bf16"),
    ("nvfp4+dy=rne", "dy=rne is not known; use dy=sr"),
    ("mxfp8+rule=mae46", "does not give scales in e8m0"),
    ("mxfp8+46", "recipe='mxfp8.46': 46 chooses between .* use it with nvfp4"),
    ("mxfp8+headroom=a", "'a' is no number; use one as 17/16"),
    ("fp8-current+2d", "has whole axes"),
    ("p=f32,c=f8,recipe=nvfp4", "products in blocks read f16, bf16 or f32"),
])
def test_what_is_no_recipe_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        Way.parse(text)


def test_the_target_follows_from_the_recipe_unless_it_is_named():
    assert RunOptions(policy="nvfp4").target.name == "hypothetical"
    assert RunOptions(policy="fp16").target.name == "mk2"
    assert RunOptions(policy="nvfp4", target="mk2").target.name == "mk2"
