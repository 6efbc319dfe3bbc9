"""Policies of a user's program: one for all layers, or by patterns of module paths.

What a user writes becomes a policy of `ipu.learn.policy`: a `Policy`, its text, the short name of
one format (`f16` stands for `p=f16,c=f16`), a preset's name, or a mapping from patterns to these.
A text with a format that those policies lack (`c=e4m3fn,out=f16`, `e5m6`) becomes a `FormatPolicy`.
The pattern `""` or `"*"` in a mapping holds for every layer that no other pattern matches.

Source    docs/semantics.md §6.
"""

from __future__ import annotations

from collections.abc import Mapping

from fpsim.records.formats import BINARY64, Format
from ipu.learn.policy import FP8, FP16, FP32, MIXED, LayerPolicies, Policy, PolicyLike
from ipu.run.format_policies import FormatPolicy, named_format

__all__ = ["PRESETS", "PolicyArgument", "find_policy", "formats_of"]

PolicyArgument = str | Policy | LayerPolicies | Mapping[str, "str | Policy"]

#: Policies by name.
PRESETS = {"fp32": FP32, "fp16": FP16, "mixed": MIXED, "fp8": FP8}

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
    """
    if isinstance(policy, Mapping):
        layers = {k: _single(p) for k, p in policy.items() if k not in _REST}
        rest = next((_single(policy[k]) for k in _REST if k in policy), FP32)
        result: Policy | LayerPolicies = rest.override(layers) if layers else rest
    elif isinstance(policy, LayerPolicies):
        result = policy
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


def _single(policy: object) -> Policy:
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, str):
        raise TypeError(
            f"policy={policy!r} is not a policy; use a text such as 'p=f16,c=f16', a Policy, or a "
            "mapping from patterns of module paths to these"
        )
    if policy in PRESETS:
        return PRESETS[policy]
    if policy in _SHORT:
        policy = f"c={policy}" if policy == "f8" else f"p={policy},c={policy}"
    elif "=" not in policy and _is_format(policy):
        policy = f"p={policy},c={policy}"
    items = [item.partition("=") for item in policy.split(",")]
    is_wider = all(sign for _, sign, _ in items) and any(f not in _SHORT for *_, f in items)
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
