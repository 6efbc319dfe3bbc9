"""Recipes of training in blocks as data: for each of three products, what each operand becomes.

A layer computes y = x wᵀ, dx = dy w and dw = dyᵀ x. Operands are quantised along the axis that the
product sums over; `fpsim.recipe_products` computes it.

recipe         source
mxfp8          TransformerEngine d0067d0: rceil, E4M3 in both passes, rows and columns apart
mxfp8-ocp      the same with OCP's floor
mxfp4          OCP's floor, to nearest: what is compared with
nvfp4          TransformerEngine d0067d0, arXiv 2509.25149: weights in 16 x 16 blocks; gradients
               stochastically; the weight gradient's operands after a Hadamard transform
nvfp4-plain    one-dimensional blocks, to nearest
fp8-delayed    TransformerEngine d0067d0: a scale for each tensor, from 1024 steps before; E4M3
               forward, E5M2 gradients; sums of the forward product stay in the unit
fp8-current    the same with scales of the tensors as they are
fp8-rowwise    torchao 36027d8: a power of two for each row, E4M3 everywhere
fp8-unit       unit-scaling 18c3f50, simulate_fp8: no scale at all, all stochastically; the model
               keeps its numbers near 1. Its E4M3 and E5M2 are F143 and F152; the library multiplies
               in binary32, the unit here is the IPU's for them. Each product draws anew
fp8-deepseek   1 x 128 and, for weights, 128 x 128 (arXiv 2412.19437), added up as DeepGEMM does

A name goes on with additions, as `mxfp4+sr34+rht64` or `nvfp4+wgrad=bf16`; see `ADDITIONS`.

Source    docs/semantics.md §3 and §5.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fpsim.records.blocks import SCALE_RULES, Block, find_block
from fpsim.records.formats import E2M1FN
from fpsim.records.rounding import RNE, SR, Rounding
from fpsim.records.transforms import Transform, find_transform

__all__ = [
    "ADDITIONS", "PRODUCTS", "RECIPES", "OperandRule", "ProductRule", "Recipe", "find_recipe",
    "is_addition", "is_recipe",
]

#: Names of the products by attribute, as additions have them.
PRODUCTS = {"fprop": "forward", "dgrad": "input_gradient", "wgrad": "weight_gradient"}


@dataclass(frozen=True)
class OperandRule:
    """What an operand of a product becomes: its block, rounding and transform.

    fresh_signs    of the transform are drawn for each product, the same for both operands.
    """

    block: Block
    rounding: Rounding = RNE
    transform: Transform | None = None
    fresh_signs: bool = False


@dataclass(frozen=True)
class ProductRule:
    """A product: what its left and right operands become, and its unit.

    left    None: it stays as it is, the right one is decoded, and the unit is that of the format.
    """

    left: OperandRule | None
    right: OperandRule
    unit: str


@dataclass(frozen=True)
class Recipe:
    """The three products of a linear layer; None: not in blocks, in the operands' own format.

    forward           x wᵀ.
    input_gradient    dy w.
    weight_gradient   dyᵀ x.
    history           steps that scales follow from, of delayed scaling; None: of none.
    """

    name: str
    forward: ProductRule | None
    input_gradient: ProductRule | None
    weight_gradient: ProductRule | None
    history: int | None = None
    source: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.name

    @property
    def rules(self) -> dict[str, ProductRule]:
        """The products in blocks, by name."""
        rules = {name: getattr(self, name) for name in PRODUCTS.values()}
        return {name: rule for name, rule in rules.items() if rule is not None}

    @property
    def is_stochastic(self) -> bool:
        """Whether an operand has random bits."""
        operands = [x for rule in self.rules.values() for x in (rule.left, rule.right)]
        return any(x.rounding.stochastic or x.fresh_signs for x in operands if x is not None)


def _plain(name: str, block: str, weights: str, unit: str, source: str) -> Recipe:
    """All operands to nearest: activations and gradients in one block, weights in another."""
    x, w = OperandRule(find_block(block)), OperandRule(find_block(weights))
    return Recipe(
        name, ProductRule(x, w, unit), ProductRule(x, w, unit), ProductRule(x, x, unit),
        source=source,
    )


def _nvfp4() -> Recipe:
    unit, stochastic = "B200_TC05_NVF4_F32", SR(bits=8)
    one, two = find_block("nvfp4"), find_block("nvfp4-2d")
    turned = find_transform("rht16")
    return Recipe(
        "nvfp4",
        ProductRule(OperandRule(one), OperandRule(two), unit),
        ProductRule(OperandRule(one, stochastic), OperandRule(two), unit),
        ProductRule(OperandRule(one, stochastic, turned), OperandRule(one, RNE, turned), unit),
        source="TransformerEngine d0067d0; arXiv 2509.25149",
    )


def _fp8(name: str, history: int | None) -> Recipe:
    """A scale for each tensor; on Hopper gradients' sums leave the unit every 128 terms."""
    x, dy = OperandRule(find_block("e4m3-tensor")), OperandRule(find_block("e5m2-tensor"))
    split = "H100_E4M3X128_F32"
    return Recipe(
        name, ProductRule(x, x, "H100_E4M3_F32"), ProductRule(dy, x, split),
        ProductRule(dy, x, split), history, _TE,
    )


def _fp8_unit() -> Recipe:
    """As many random bits as binary32 has digits more than the element."""
    x = OperandRule(find_block("f143-unit"), SR(bits=20))
    dy = OperandRule(find_block("f152-unit"), SR(bits=21))
    unit = "AMP_F8_F16"
    return Recipe(
        "fp8-unit", ProductRule(x, x, unit), ProductRule(dy, x, unit), ProductRule(dy, x, unit),
        source="unit-scaling 18c3f50, simulate_fp8",
    )


_TE = "TransformerEngine d0067d0"

#: Every recipe by name.
RECIPES = {
    recipe.name: recipe
    for recipe in (
        _plain("mxfp8", "mxfp8-rceil", "mxfp8-rceil", "B200_TC05_MXF8_F32", _TE),
        _plain("mxfp8-ocp", "mxfp8", "mxfp8", "B200_TC05_MXF8_F32", "OCP MX 1.0"),
        _plain("mxfp4", "mxfp4", "mxfp4", "B200_TC05_MXF4_F32", "OCP MX 1.0"),
        _nvfp4(),
        _plain("nvfp4-plain", "nvfp4", "nvfp4", "B200_TC05_NVF4_F32", _TE),
        _fp8("fp8-delayed", 1024),
        _fp8("fp8-current", None),
        _plain("fp8-rowwise", "e4m3-row", "e4m3-row", "H100_E4M3_F32", "torchao 36027d8"),
        _plain("fp8-deepseek", "e4m3-128", "e4m3-128x128", "H100_E4M3X128_F32",
               "arXiv 2412.19437; DeepGEMM 54e2261"),
        _fp8_unit(),
    )
}


# Additions ----------------------------------------------------------------------------------------

#: What an addition does, as `fpsim list recipes` and errors tell it.
ADDITIONS = {
    "wgrad=bf16": "this product is not in blocks; likewise dgrad and fprop",
    "dy=sr": "gradients stochastically, with 8 random bits",
    "sr34": "both operands of the backward products stochastically, of three quarters of each "
            "element (arXiv 2502.20586)",
    "rht16": "the weight gradient's operands transformed with fixed signs (TransformerEngine)",
    "rht64": "both backward products' operands transformed with fresh signs (arXiv 2502.20586); "
             "also rht32, rht128",
    "2d": "square blocks for weights",
    "46": "scales of nvfp4 by the smaller error of 4 and 6, where nothing is transformed",
    "weights-only": "activations and gradients stay as they are, weights are decoded for each "
                    "product; the weight gradient is not in blocks",
    "headroom=17/16": "a factor of the largest magnitude before the rule",
    "rule=rceil": "another rule for scales",
    "-sr": "nothing stochastically",
    "-rht": "no transform",
    "-2d": "blocks of weights in one dimension",
}

_FRESH = (32, 64, 128)


def is_addition(text: str) -> bool:
    """Whether a text is an addition to a recipe, and no name of a layer with its policy.

    >>> is_addition("wgrad=bf16"), is_addition("head=bf16"), is_addition("rht64")
    (True, False, True)
    """
    key, sign, _ = text.partition("=")
    return key in (*PRODUCTS, "dy", "headroom", "rule") if sign else text in _SIMPLE


Change = Callable[[OperandRule], OperandRule]


def _changed(recipe: Recipe, *, backward: Change | None = None, wgrad: Change | None = None,
             weights: Change | None = None, gradients: Change | None = None,
             every: Change | None = None) -> Recipe:
    """The recipe with some of its operands changed."""
    changes: dict[str, ProductRule] = {}
    for name, rule in recipe.rules.items():
        is_wgrad, is_forward = name == "weight_gradient", name == "forward"
        of_both = [every, None if is_forward else backward, wgrad if is_wgrad else None]
        of_left = [*of_both, None if is_forward else gradients]
        of_right = [*of_both, None if is_wgrad else weights]
        left, right = rule.left, rule.right
        for change in filter(None, of_left if left is not None else []):
            left = change(left)  # type: ignore[arg-type]
        for change in filter(None, of_right):
            right = change(right)
        changes[name] = replace(rule, left=left, right=right)
    return replace(recipe, **changes)  # type: ignore[arg-type]


def _square(x: OperandRule) -> OperandRule:
    n = x.block.elements
    if n is None:
        raise ValueError(f"block={x.block} has whole axes; square blocks are of 16, 32 or 128")
    block = x.block
    name = "nvfp4-2d" if block == find_block("nvfp4") else f"{block.name}-2d"
    return replace(x, block=replace(block, name=name, shape=(n, n)))


def _in_a_row(x: OperandRule) -> OperandRule:
    if x.block.rows in (1, None):
        return x
    name = x.block.name.removesuffix("-2d")
    return replace(x, block=replace(x.block, name=name, shape=(1, x.block.elements)))


def _stochastic(x: OperandRule) -> OperandRule:
    return replace(x, rounding=SR(bits=8))


def _three_quarters(x: OperandRule) -> OperandRule:
    name = f"{x.block.name}-34"
    return replace(_stochastic(x), block=replace(x.block, name=name, shrink=0.75))


def _four_or_six(x: OperandRule) -> OperandRule:
    if x.block.element != E2M1FN or x.transform is not None or x.block.tensor_scale is None:
        return x
    block = replace(
        x.block, name=f"{x.block.name}-46", scale_rule="mae46", bound=256.0,
    )
    return replace(x, block=block)


def _with_four_or_six(recipe: Recipe) -> Recipe:
    changed = _changed(recipe, every=_four_or_six)
    if changed == recipe:
        raise ValueError(
            "46 chooses between two scales with digits of e2m1fn without a transform, of which "
            "this recipe has none; use it with nvfp4 or nvfp4-plain"
        )
    return changed


def _turned(size: int) -> Change:
    if size in _FRESH:
        transform = Transform(f"rht{size}", size)
        return lambda x: replace(x, transform=transform, fresh_signs=True)
    return lambda x: replace(x, transform=find_transform("rht16"), fresh_signs=False)


def _straight(x: OperandRule) -> OperandRule:
    return replace(x, transform=None, fresh_signs=False)


def _to_nearest(x: OperandRule) -> OperandRule:
    return replace(x, rounding=RNE)


def _weights_only(recipe: Recipe) -> Recipe:
    """Of scales by tensor that follow from steps before nothing is left: weights are known."""
    changes = {name: replace(rule, left=None) for name, rule in recipe.rules.items()}
    return replace(recipe, **{**changes, "weight_gradient": None}, history=None)  # type: ignore[arg-type]


_SIMPLE: dict[str, Callable[[Recipe], Recipe]] = {
    "weights-only": _weights_only,
    "sr34": lambda r: _changed(r, backward=_three_quarters),
    "rht16": lambda r: _changed(r, wgrad=_turned(16)),
    **{f"rht{n}": lambda r, n=n: _changed(r, backward=_turned(n)) for n in _FRESH},  # type: ignore[misc]
    "2d": lambda r: _changed(r, weights=_square),
    "46": lambda r: _with_four_or_six(r),
}
_WITHOUT: dict[str, Callable[[Recipe], Recipe]] = {
    "-sr": lambda r: _changed(r, every=_to_nearest),
    "-rht": lambda r: _changed(r, every=_straight),
    "-2d": lambda r: _changed(r, weights=_in_a_row),
}


def _with_value(recipe: Recipe, key: str, value: str) -> Recipe:
    """The recipe with an addition KEY=VALUE.

    Raises    ValueError for a value that the key does not take.
    """
    if key in PRODUCTS and value == "bf16":
        return replace(recipe, **{PRODUCTS[key]: None})  # type: ignore[arg-type]
    if key == "dy" and value == "sr":
        return _changed(recipe, gradients=_stochastic)
    if key == "headroom":
        above, _, below = value.partition("/")
        try:
            factor = float(above) / float(below or 1)
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"{value!r} is no number; use one as 17/16") from None
        return _changed(recipe, every=lambda x: replace(x, block=replace(
            x.block, name=f"{x.block.name}-h{value}", headroom=factor)))
    if key == "rule" and value in SCALE_RULES:
        return _changed(recipe, every=lambda x: replace(x, block=replace(
            x.block, name=f"{x.block.name}-{value}", scale_rule=value)))
    allowed = {"dy": "sr", "rule": " or ".join(SCALE_RULES)}.get(key, "bf16")
    raise ValueError(f"{key}={value} is not known; use {key}={allowed}")


def _without_suffixes(name: str) -> tuple[str, list[str]]:
    """A name without -sr, -rht, -2d at its end, and these."""
    suffixes: list[str] = []
    while name not in RECIPES:
        suffix = next((s for s in _WITHOUT if name.endswith(s)), "")
        if not suffix:
            break
        name = name.removesuffix(suffix)
        suffixes.insert(0, suffix)
    return name, suffixes


def is_recipe(text: str) -> bool:
    """Whether a text begins with the name of a recipe.

    >>> is_recipe("nvfp4-rht+head=bf16"), is_recipe("fp8")
    (True, False)
    """
    return _without_suffixes(text.partition("+")[0].strip().lower())[0] in RECIPES


def find_recipe(name: str | Recipe) -> Recipe:
    """The recipe of that name, with its additions.

    Raises    TypeError for what is neither, ValueError for a name or addition that is not known.

    >>> find_recipe("nvfp4").weight_gradient.left.rounding
    SR(bits=8)
    >>> find_recipe("mxfp4+sr34+rht64").weight_gradient.left.block.shrink
    0.75
    >>> find_recipe("nvfp4-rht+wgrad=bf16").weight_gradient is None
    True
    """
    if isinstance(name, Recipe):
        return name
    if not isinstance(name, str):
        raise TypeError(f"recipe={name!r} is no Recipe; use one of {', '.join(RECIPES)}")
    base, *additions = (part.strip() for part in name.lower().split("+"))
    base, suffixes = _without_suffixes(base)
    if base not in RECIPES:
        close = difflib.get_close_matches(base, RECIPES, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"recipe={name!r} is not known; use one of {', '.join(RECIPES)}.{hint}")
    recipe = RECIPES[base]
    for suffix in suffixes:
        recipe = replace(_WITHOUT[suffix](recipe), name=recipe.name + suffix)
    for addition in additions:
        recipe = replace(_added(recipe, addition, name), name=f"{recipe.name}+{addition}")
    return recipe


def _added(recipe: Recipe, addition: str, name: str) -> Recipe:
    key, sign, value = addition.partition("=")
    if not is_addition(addition):
        raise ValueError(
            f"recipe={name!r}: {addition!r} is not known; use one of "
            f"{', '.join(a for a in ADDITIONS if a[0] != '-')}"
        )
    try:
        return _with_value(recipe, key, value) if sign else _SIMPLE[addition](recipe)
    except ValueError as error:
        raise ValueError(f"recipe={name!r}: {error}") from None
