"""Recipes and what can follow their names: every rule of every product (golden, corners)."""

from __future__ import annotations

import itertools

import pytest

from fpsim.records.recipes import PRODUCTS, RECIPES, find_recipe, is_addition, is_recipe
from fpsim.records.rounding import RNE, SR


def operands(recipe):
    """Every rule of an operand, by product and side."""
    return {
        (product, side): getattr(rule, side)
        for product, rule in recipe.rules.items()
        for side in ("left", "right")
        if getattr(rule, side) is not None
    }


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_without_random_bits_changes_nothing_but_the_rounding(name):
    whole, nearest = operands(find_recipe(name)), operands(find_recipe(f"{name}-sr"))
    assert whole.keys() == nearest.keys()
    for place, rule in nearest.items():
        assert rule.rounding == RNE
        assert rule.block == whole[place].block
        assert rule.transform == whole[place].transform


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_without_transforms_has_none(name):
    assert all(rule.transform is None for rule in operands(find_recipe(f"{name}-rht")).values())
    assert find_recipe(f"{name}-rht").name == f"{name}-rht"


def test_three_quarters_are_taken_in_the_backward_products_alone():
    for (product, side), rule in operands(find_recipe("mxfp4+sr34")).items():
        backward = product != "forward"
        assert rule.block.shrink == (0.75 if backward else 1.0), (product, side)
        assert rule.block.name == ("mxfp4-34" if backward else "mxfp4")
        assert rule.rounding == (SR(bits=8) if backward else RNE)


def test_a_factor_of_headroom_is_a_quotient():
    for rule in operands(find_recipe("nvfp4+headroom=17/16")).values():
        assert rule.block.headroom == 17 / 16
    assert {r.block.headroom for r in operands(find_recipe("nvfp4+headroom=2")).values()} == {2.0}


@pytest.mark.parametrize("key", PRODUCTS)
def test_a_product_in_bfloat16_has_no_rules(key):
    recipe, product = find_recipe(f"mxfp8+{key}=bf16"), PRODUCTS[key]
    assert getattr(recipe, product) is None
    assert all(getattr(recipe, other) for other in PRODUCTS.values() if other != product)


def test_suffixes_come_in_any_order_and_number():
    assert is_recipe("nvfp4")
    for n in (1, 2, 3):
        for suffixes in itertools.permutations(("-sr", "-rht", "-2d"), n):
            name = "nvfp4" + "".join(suffixes)
            assert is_recipe(name)
            assert find_recipe(name).name == name
            assert find_recipe(name).rules == find_recipe("nvfp4" + "".join(sorted(suffixes))).rules


@pytest.mark.parametrize(("name", "message"), [
    ("mxfp5", r"use one of mxfp8, .* Did you mean 'mxfp\d'"),
    ("mxfp4+sr35", "'sr35' is not known; use one of"),
    ("mxfp4+-sr", "'-sr' is not known; use one of"),
    ("mxfp4+dy=up", "dy=up is not known; use dy=sr"),
    ("mxfp4+wgrad=fp8", "wgrad=fp8 is not known; use wgrad=bf16"),
    ("mxfp4+headroom=1/0", "'1/0' is no number; use one as 17/16"),
    ("mxfp4+rule=up", "rule=up is not known; use rule="),
])
def test_names_and_additions_that_are_not_known_are_refused(name, message):
    with pytest.raises(ValueError, match=message):
        find_recipe(name)


def test_names_of_layers_are_no_additions():
    assert not is_addition("head=bf16")
    assert not is_recipe("bfloat16")
