"""Policies of a user's program: one for all layers, or by patterns of module paths.

What a user writes becomes a policy of `ipu.learn.policy`: a `Policy`, its text, the short name of
one format (`f16` stands for `p=f16,c=f16`), a preset's name, or a mapping from patterns to these.
A text with a format that those policies lack (`c=e4m3fn,out=f16`, `e5m6`) becomes a `FormatPolicy`.
The name of a recipe (`nvfp4`, `mxfp4+sr34+rht64`, `nvfp4+head=bf16`) is its `recipe_policy`.
The pattern `""` or `"*"` in a mapping holds for every layer that no other pattern matches.

Source    docs/semantics.md §6.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from fpsim.records.formats import BFLOAT16, BINARY64, Format
from fpsim.records.recipes import RECIPES, Recipe, find_recipe, is_addition, is_recipe
from ipu.learn.policy import (
    BF16_MIXED,
    FP8,
    FP16,
    FP32,
    MIXED,
    LayerPolicies,
    Policy,
    PolicyLike,
    recipe_policy,
)
from ipu.run.format_policies import FormatPolicy, named_format

__all__ = [
    "PRESETS", "PolicyArgument", "find_policy", "formats_of", "has_recipe", "recipes_of",
    "with_addition", "with_layer",
]

PolicyArgument = str | Policy | LayerPolicies | Mapping[str, "str | Policy"]

#: Policies by name.
PRESETS = {"fp32": FP32, "fp16": FP16, "mixed": MIXED, "fp8": FP8, "bf16-mixed": BF16_MIXED}

#: Formats of the policies of `ipu.learn`.
_SHORT = ("f16", "f32", "bf16", "f64", "f8")
#: Patterns that stand for all other layers.
_REST = ("", "*")


def find_policy(policy: PolicyArgument) -> Policy | LayerPolicies:
    """The policy that an argument means.

    Raises    ValueError for a text that is no policy, TypeError for another object.

    >>> print(find_policy("f16"))
    p=f16,c=f16,part=f32
    >>> print(find_policy({"encoder.*": "c=f16,part=f16", "head": "f32"}).of("encoder.0"))
    p=f32,c=f16,part=f16
    >>> find_policy("nvfp4+wgrad=bf16+head=bf16").of("head").recipe is None
    True
    """
    if isinstance(policy, Mapping):
        layers = {k: _single(p) for k, p in policy.items() if k not in _REST}
        rest = next((_single(policy[k]) for k in _REST if k in policy), FP32)
        result: Policy | LayerPolicies = rest.override(layers) if layers else rest
    elif isinstance(policy, LayerPolicies):
        result = policy
    elif isinstance(policy, str) and is_recipe(policy):
        name, *additions = policy.split("+")
        result = recipe_policy(name.strip())
        for addition in additions:
            result = with_addition(result, addition.strip(), policy)
    elif isinstance(policy, str) and (";" in policy or ":" in policy):
        result = LayerPolicies.parse(policy)
    else:
        result = _single(policy)
    for one in result.all:
        _check(one)
    return result


def formats_of(policy: PolicyLike) -> set[Format]:
    """Every format that a policy names."""
    return {
        f for p in policy.all for f in (p.param, p.compute, p.output, p.activations, p.accumulator)
    }


def recipes_of(policy: PolicyLike) -> list[Recipe]:
    """The recipes of a policy."""
    return list(dict.fromkeys(p.recipe for p in policy.all if p.recipe is not None))


def has_recipe(policy: PolicyArgument) -> bool:
    """Whether a policy has a product in blocks."""
    return bool(recipes_of(find_policy(policy)))


def with_layer(
    policy: Policy | LayerPolicies, pattern: str, of_layer: Policy = FP32
) -> LayerPolicies:
    """A policy with another one for the layers of a pattern, before all others."""
    layers = policy.layers if isinstance(policy, LayerPolicies) else ()
    return LayerPolicies(policy.default, ((pattern, of_layer), *layers))


def with_addition(
    policy: Policy | LayerPolicies, addition: str, text: str
) -> Policy | LayerPolicies:
    """A policy with an addition to its recipe, or with LAYER=POLICY.

    Beside a recipe, LAYER=bf16 leaves parameters as they are and its products out of blocks. LAYER
    may be last2: the last two blocks, or layers (`ipu.learn.patterns`).

    text      that the addition stands in, for errors.
    Raises    ValueError for an addition that is neither.
    """
    recipe = policy.default.recipe
    if recipe is not None and is_addition(addition):
        changed = replace(policy.default, recipe=find_recipe(f"{recipe}+{addition}"))
        is_one = not isinstance(policy, LayerPolicies)
        return changed if is_one else LayerPolicies(changed, policy.layers)  # type: ignore[union-attr]
    key, _, value = addition.rpartition("=")
    if not (key and value):
        raise ValueError(f"policy={text!r}: {addition!r} is not known; {_HINT}")
    if recipe is not None and value == "bf16" and policy.default.compute == BFLOAT16:
        return with_layer(policy, key, replace(policy.default, recipe=None))
    of_layer = find_policy(value)
    if not isinstance(of_layer, Policy):
        raise ValueError(f"policy={text!r}: {value!r} is not a policy of one layer; {_HINT}")
    return with_layer(policy, key, of_layer)


#: How a recipe's name goes on.
_HINT = "use RECIPE[+ADDITION][+LAYER=f32|bf16|RECIPE], as in nvfp4+wgrad=bf16+head=bf16"


def _single(policy: object) -> Policy:
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str) and is_recipe(policy):
        of_all = find_policy(policy)
        if isinstance(of_all, Policy):
            return of_all
        raise ValueError(f"policy={policy!r} is of several layers; give one of a layer here")
    if not isinstance(policy, str):
        raise TypeError(
            f"policy={policy!r} is not a policy; use a text such as 'p=f16,c=f16', a Policy, or a "
            "mapping from patterns of module paths to these"
        )
    if policy in PRESETS:
        return PRESETS[policy]
    base, plus, additions = policy.partition("+")
    if plus and (base in PRESETS or base in _SHORT):
        raise ValueError(
            f"policy={policy!r}: {'+' + additions!r} is no part of a policy; give policy={base!r} "
            "with sr=True, changes=Changes(...) or a mapping of layers, or the whole as a way of "
            "--compare"
        )
    if policy in _SHORT:
        policy = f"c={policy}" if policy == "f8" else f"p={policy},c={policy}"
    elif "=" not in policy and _is_format(policy):
        policy = f"p={policy},c={policy}"
    elif "=" not in policy:
        close = difflib.get_close_matches(policy.partition("+")[0].lower(), [*PRESETS, *RECIPES], 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"policy item {policy!r} is not known; use one of {', '.join(PRESETS)}, a format of "
            f"`fpsim list formats`, a recipe of blocks ({', '.join(RECIPES)}), or formats as in "
            f"p=f32,c=f16,part=f32.{hint}"
        )
    items = [item.partition("=") for item in policy.split(",")]
    formats = [name for key, _, name in items if key != "recipe"]
    is_wider = all(sign for _, sign, _ in items) and any(f not in _SHORT for f in formats)
    return FormatPolicy.parse(policy) if is_wider else Policy.parse(policy)


def _is_format(name: str) -> bool:
    try:
        named_format(name)
    except ValueError:
        return False
    return True


def _check(policy: Policy) -> None:
    """Refuse what tensors of a framework cannot hold."""
    if BINARY64 in (policy.param, policy.compute):
        raise ValueError(
            f"policy={policy}: float32 tensors hold no binary64 values; use f16, bf16 or f32"
        )
