"""Policies of a user's program: one for all layers, or by patterns of module paths.

What a user writes becomes a policy of `ipu.learn.policy`: a `Policy`, its text, the short name of
one format (`f16` stands for `p=f16,c=f16`), a preset's name, or a mapping from patterns to these.
The pattern `""` or `"*"` in a mapping holds for every layer that no other pattern matches.

Source    docs/semantics.md §6.
"""

from __future__ import annotations

from collections.abc import Mapping

from fpsim.records.formats import BINARY64, F143
from ipu.learn.policy import FP16, FP32, MIXED, LayerPolicies, Policy, PolicyLike

__all__ = ["PRESETS", "PolicyArgument", "find_policy"]

PolicyArgument = str | Policy | LayerPolicies | Mapping[str, "str | Policy"]

#: Policies by name.
PRESETS = {"fp32": FP32, "fp16": FP16, "mixed": MIXED}

_SHORT = ("f16", "f32", "bf16")
#: Patterns that stand for all other layers.
_REST = ("", "*")


def find_policy(policy: PolicyArgument) -> PolicyLike:
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
        chosen: PolicyLike = rest.override(layers) if layers else rest
    elif isinstance(policy, LayerPolicies):
        chosen = policy
    elif isinstance(policy, str) and (";" in policy or ":" in policy):
        chosen = LayerPolicies.parse(policy)
    else:
        chosen = _single(policy)
    for each in chosen.all:
        _check(each)
    return chosen


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
        policy = f"p={policy},c={policy}"
    return Policy.parse(policy)


def _check(policy: Policy) -> None:
    """Refuse what tensors of a framework cannot hold, or products do not know yet."""
    if BINARY64 in (policy.param, policy.compute):
        raise ValueError(
            f"policy={policy}: float32 tensors hold no binary64 values; use f16, bf16 or f32"
        )
    if policy.compute == F143:
        raise ValueError(
            f"policy={policy}: products of quarters are not built for front ends; use f16, bf16 "
            "or f32, or the networks of ipu.learn"
        )
