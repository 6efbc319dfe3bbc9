"""Policies of a user's program: one for all layers, or by patterns of module paths.

What a user writes becomes a policy of `ipu.learn.policy`: a `Policy`, its text, the short name of
one format (`f16` stands for `p=f16,c=f16`), a preset's name, or a mapping from patterns to these.
A text with a format that those policies lack (`c=e4m3fn,out=f16`, `e5m6`) becomes a `FormatPolicy`.
The name of a recipe (`nvfp4`, `mxfp4+sr34+rht64`, `nvfp4+head=bf16`) is its policy with additions.
The pattern `""` or `"*"` in a mapping holds for every layer that no other pattern matches.

Source    docs/semantics.md §6.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from fpsim.records.formats import BINARY64, Format
from fpsim.records.recipes import RECIPES, Recipe, is_recipe
from ipu.learn.policy import (
    BF16_MIXED,
    FP8,
    FP16,
    FP32,
    MIXED,
    LayerPolicies,
    Policy,
    PolicyLike,
    with_additions,
)
from ipu.run.format_policies import FormatPolicy, named_format

__all__ = [
    "PRESETS", "PolicyArgument", "find_policy", "formats_of", "has_recipe", "recipes_of",
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
        result = with_additions(policy, find_policy)
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
