"""Ways of running one program: a policy, the rounding, and changes of the program from outside.

As text a way is a policy and what is added to it: `fp16+sr+eps=1e-4`, `mixed+scale=1024`,
`fp16+head=f32` (layer head in binary32), `fp16+1e-12=1e-4` (the constant 1e-12 replaced),
`nvfp4+wgrad=bf16` (an addition to a recipe). `+halves` gives tensors that the program makes float16
the policy's formats. What is printed can be read again and is the same way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from fpsim.records.recipes import is_addition
from ipu.learn.policy import FP32, LayerPolicies, Policy, with_addition, with_layer
from ipu.run.changes import NONE, Changes
from ipu.run.policies import PRESETS, find_policy

__all__ = ["Way", "parse_ways"]

#: Additions that let one part of a program be in binary32.
_WIDE: dict[str, Callable[[Changes], Changes]] = {
    "states=f32": lambda changes: replace(changes, wide_states=True),
    "data=f32": lambda changes: replace(changes, wide_data=True),
}
#: Additions with a value of their own. A layer of such a name is written in brackets: [s]cale=f32.
_OPTIONS = ("eps", "cache", "scale")
_HINT = (
    "use POLICY[+sr][+eps=X][+scale=2^k][+states=f32][+data=f32][+OLD=NEW][+LAYER=f32], as in "
    "fp16+sr+eps=1e-4, or a recipe with its additions, as nvfp4+wgrad=bf16+head=bf16"
)
#: Between additions; that of an exponent, as in 8.4e+06, is none.
_PLUS = re.compile(r"(?<![0-9.][eE])\+|\+(?!\d)")
#: Keys of a policy's text, whose commas belong to it.
_POLICY_KEYS = ("p=", "c=", "part=", "acc=", "out=", "recipe=")


@dataclass(frozen=True)
class Way:
    """How a program runs.

    >>> way = Way.parse("fp16+sr+eps=1e-4+head=f32")
    >>> way.sr, way.changes.eps, str(way.policy.of("head"))
    (True, 0.0001, 'p=f32,c=f32,part=f32')
    >>> str(way)
    'fp16+sr+eps=0.0001+head=f32'
    """

    policy: Policy | LayerPolicies = FP32
    sr: bool = False
    changes: Changes = NONE

    @classmethod
    def parse(cls, text: str) -> Way:
        """A way from its text.

        Raises    ValueError for a text that is none.
        """
        policy, *additions = _PLUS.split(text)
        way = cls(find_policy(policy.strip()))
        for addition in additions:
            way = way._with(addition.strip(), text)
        return way

    def _with(self, addition: str, text: str) -> Way:
        if addition == "sr":
            return replace(self, sr=True)
        if addition == "stable":
            return replace(self, changes=replace(self.changes, stable_statistics=True))
        if addition == "halves":
            return self.with_policies
        if self.policy.default.recipe is not None and is_addition(addition):
            return replace(self, policy=with_addition(self.policy, addition, text, find_policy))
        key, _, value = addition.rpartition("=")
        if not (key and value):
            raise ValueError(f"way={text!r}: {addition!r} is not known; {_HINT}")
        try:
            if key == "eps":
                return replace(self, changes=replace(self.changes, eps=float(value)))
            if key == "cache":
                return replace(self, changes=replace(self.changes, cache=value))
            if key == "scale":
                return replace(self, changes=replace(self.changes, loss_scale=_scale(value)))
        except ValueError as error:
            raise ValueError(
                f"way={text!r}: {error}; a layer of that name is [{key[0]}]{key[1:]}") from None
        if addition in _WIDE:
            return replace(self, changes=_WIDE[addition](self.changes))
        if _is_number(key) and _is_number(value):
            constants = (*self.changes.constants, (float(key), float(value)))
            return replace(self, changes=replace(self.changes, constants=constants))
        return replace(self, policy=with_addition(self.policy, addition, text, find_policy))

    def with_layer(self, pattern: str, policy: Policy = FP32) -> Way:
        """This way, with another policy for the layers of a pattern, before all others."""
        return replace(self, policy=with_layer(self.policy, pattern, policy))

    @property
    def with_policies(self) -> Way:
        """This way, with the policy's formats also for tensors that the program makes float16."""
        return replace(self, changes=replace(self.changes, halves_by_policy=True))

    def check_for_graphs(self) -> None:
        """Refuse changes of the program from outside that are made on tensors, not in graphs.

        Raises    ValueError.
        """
        if self.changes.cache:
            raise ValueError(
                f"way={str(self)!r} changes the program by cache={self.changes.cache}, which fpsim "
                "torch alone can; leave it out, and change the program"
            )

    def __str__(self) -> str:
        layers = self.policy.layers if isinstance(self.policy, LayerPolicies) else ()
        texts = (
            _short(self.policy.default),
            "sr" if self.sr else "",
            str(self.changes),
            *(_layer_text(pattern, policy) for pattern, policy in reversed(layers)),
        )
        return "+".join(filter(None, texts))


def parse_ways(text: str) -> list[Way]:
    """Ways from a list with commas; those inside of a policy's text belong to it.

    Raises    ValueError for no way, an empty one, and one that comes twice.

    >>> [str(way) for way in parse_ways("fp32,p=f16,c=f16,part=f16+sr")]
    ['fp32', 'p=f16,c=f16,part=f16+sr']
    """
    pieces: list[str] = []
    for piece in text.split(","):
        continues = pieces and piece.startswith(_POLICY_KEYS[1:])
        if continues:
            pieces[-1] += f",{piece}"
        else:
            pieces.append(piece)
    if text and not all(piece.strip() for piece in pieces):
        raise ValueError(f"ways={text!r} has an empty way; put one comma between two ways")
    ways = [Way.parse(piece) for piece in pieces if piece]
    names = [str(way) for way in ways]
    if len(set(names)) < max(len(names), 1):
        raise ValueError(f"ways={text!r} must name one way at least, and none twice; {_HINT}")
    return ways


def _scale(text: str) -> float:
    """A loss scale, also as a power or a quotient; a power of two with six digits is that power.

    >>> _scale("2^10"), _scale("1/16"), _scale("8.38861e+06")
    (1024.0, 0.0625, 8388608.0)
    """
    base, power, exponent = text.partition("^")
    if power:
        return float(base) ** int(exponent)
    above, _, below = text.partition("/")
    scale = float(above) / float(below or 1)
    nearest = 2.0 ** round(math.log2(scale)) if 0 < scale < math.inf else scale
    return nearest if float(f"{nearest:g}") == scale else scale


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _short(policy: Policy) -> str:
    """The name of a policy, or its text."""
    name = next((name for name, preset in PRESETS.items() if preset == policy), "")
    recipe = policy.recipe
    if recipe is not None and replace(policy, recipe=None) == PRESETS["bf16-mixed"]:
        return str(recipe)
    return name or str(policy)


def _layer_text(pattern: str, policy: Policy) -> str:
    """A layer's addition, where binary32 is f32; of a layer named as an option, in brackets.

    >>> _layer_text("scale", FP32), _layer_text("scales", FP32)
    ('[s]cale=f32', 'scales=f32')
    """
    name = _short(policy)
    name = name.replace("fp", "f") if name in PRESETS else name
    if pattern in _OPTIONS or f"{pattern}={name}" in _WIDE:
        pattern = f"[{pattern[0]}]{pattern[1:]}"
    return f"{pattern}={name}"
