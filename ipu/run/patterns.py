"""Patterns of a user's policy that match no layer of the program: refused, with the nearest names.

Layers are known only when they run. A front end asks at the first moment at which every layer of a
step has run; a pattern that no layer matches would leave all of them in the rest's policy.

Source    docs/semantics.md §6 (patterns are those of file names).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from ipu.learn.patterns import matches
from ipu.learn.policy import LayerPolicies, PolicyLike

__all__ = ["PatternError", "patterns_of", "refuse_pattern", "unmatched"]

#: Names that the error tells, of the nearest and of all.
_NEAREST, _SHOWN = 3, 8
#: Names that are less alike than this are no help.
_ALIKE = 0.5


class PatternError(ValueError):
    """A pattern of a policy that matches no layer."""


def patterns_of(policy: PolicyLike) -> list[str]:
    """The patterns of a policy that a layer must match: not that of all layers, nor last2 that is
    understood."""
    if not isinstance(policy, LayerPolicies):
        return []
    return [p for p, _ in policy.layers if p.strip("*") and p not in policy.meanings]


def unmatched(patterns: Collection[str], layers: Collection[str]) -> list[str]:
    """The patterns that match none of these layers.

    >>> unmatched(["head", "encoder.*"], ["encoder.0", "encoder.1"])
    ['head']
    """
    return [p for p in patterns if not any(matches(layer, p) for layer in layers)]


#: What the name of a layer is, of modules.
_OF_MODULES = (
    "A layer's name is its path in the module that the program calls, whose own name is its class's"
)


def refuse_pattern(
    pattern: str, layers: Collection[str], rest: object, naming: str = _OF_MODULES
) -> PatternError:
    """The error of a pattern that matches none of these layers.

    rest    the policy of layers that no pattern matches.
    naming  what the name of a layer is, in a sentence.

    >>> raise refuse_pattern("haed", ["Net", "body.0", "head"], "p=f32,c=f32")
    Traceback (most recent call last):
    ...
    ipu.run.patterns.PatternError: policy pattern 'haed' matches no layer of this \
program, which would run in p=f32,c=f32; did you mean 'head'? There are Net, body.0, head. A \
layer's name is its path in the module that the program calls, whose own name is its class's
    """
    names = sorted(layers)
    text = pattern.strip("*.").lower()
    near = [name for name in names if text in name.lower()][:_NEAREST]
    near = near or difflib.get_close_matches(pattern.replace("*", ""), names, _NEAREST, _ALIKE)
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    shown = ", ".join(names[:_SHOWN]) or "none"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return PatternError(
        f"policy pattern {pattern!r} matches no layer of this program, which would run in {rest}; "
        f"{hint}There are {shown}{more}. {naming}"
    )
