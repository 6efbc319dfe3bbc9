"""Policy: which format parameters, computation, partial and accumulated sums, and results have.

A policy holds for a model; `override` gives layers whose names match a pattern another one. Layers
do not read it: `ipu.learn.nn.in_layer` casts their input into the right format.

Source    poplibs, convolution options (partials narrower than the output are ignored; products of
          quarters keep half partials); docs/semantics.md §6.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    BINARY64,
    F143,
    Format,
    find_number_format,
)
from fpsim.records.recipes import Recipe, find_recipe, is_addition, is_recipe
from ipu.learn.patterns import check_patterns, is_by_order, matches, meant
from ipu.machine.reference import wide

__all__ = [
    "BF16_MIXED", "FP8", "FP16", "FP32", "FP64", "MIXED", "LayerPolicies", "Policy", "PolicyLike",
    "find_policy", "recipe_policy", "with_addition", "with_additions", "with_layer",
]

_SHORT = {BINARY16: "f16", BINARY32: "f32", BINARY64: "f64", BFLOAT16: "bf16", F143: "f8"}
_LONG = {short: fmt for fmt, short in _SHORT.items()}
_KEYS = {"p": "param", "c": "compute", "part": "partials", "acc": "accumulator", "out": "output"}
_WIDE = ("f16", "f32", "bf16", "f64")
#: What each may be. F143 stands for quarters: F143 forward, F152 backward.
_ALLOWED = {
    "param": _WIDE, "compute": tuple(_LONG), "partials": ("f16", "f32", "f64"),
    "accumulator": _WIDE, "output": _WIDE,
}


def _named(name: str) -> Format | None:
    """The format of that name, f8 included; None for another name."""
    try:
        return _LONG[name] if name in _LONG else find_number_format(name)
    except (TypeError, ValueError):
        return None


def _field_format(name: str, value: Format | str) -> Format:
    """The format of that field of a policy, by its name too; refused where it cannot be one."""
    fmt = find_number_format(value, name)
    if _SHORT.get(fmt, "") not in _ALLOWED[name]:
        key = next(short for short, long in _KEYS.items() if long == name)
        raise ValueError(
            f"{name}={fmt} is not a policy's format; use {key}={'|'.join(_ALLOWED[name])}"
        )
    return fmt


class PolicyLike(Protocol):
    """One policy for all layers, or one for each."""

    @property
    def default(self) -> Policy:
        """The policy of layers that no pattern matches."""

    @property
    def all(self) -> tuple[Policy, ...]:
        """Every policy that a layer may have."""

    def of(self, layer: str) -> Policy:
        """The policy of the layer of that name."""

    def check(self, layers: Collection[str]) -> None:
        """Refuse a pattern that none of these layers matches."""


@dataclass(frozen=True)
class Policy:
    """Formats of a training run, or their names; those that are None follow from the others.

    param        in which parameters are stored and updated.
    compute      BINARY64 is the processor's own arithmetic, a reference (target="reference"); else
                 of matrix products, and of activations and gradients; F143 means quarters: products
                 of F143 forward and of F152 with F143 backward, everything else in binary16.
    partials     of the partial sums inside matrix products (None: binary16 for quarters, else
                 binary32). Partials narrower than the output are not used; a warning says so.
    accumulator  of gradient accumulation (None: param).
    output       of a layer's result (None: the format of activations).
    recipe       of products of activations with weights, in blocks (None: in `compute`); its name
                 with additions, as "nvfp4+wgrad=bf16", or a `Recipe`.

    >>> print(Policy(param=BINARY32, compute=BINARY16))
    p=f32,c=f16,part=f32
    >>> print(Policy(compute=BFLOAT16, recipe="mxfp8"))
    p=f32,c=bf16,part=f32,recipe=mxfp8
    >>> Policy.parse("p=f16,c=f16,acc=f32").accumulator == BINARY32
    True
    """

    param: Format = BINARY32
    compute: Format = BINARY32
    partials: Format = None  # type: ignore[assignment]
    accumulator: Format = None  # type: ignore[assignment]
    output: Format = None  # type: ignore[assignment]
    recipe: Recipe | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "compute", _field_format("compute", self.compute))
        if self.recipe is not None:
            object.__setattr__(self, "recipe", find_recipe(self.recipe))
        if self.recipe is not None and self.compute in (F143, BINARY64):
            raise ValueError(
                f"recipe={self.recipe} with compute={self.compute}: products in blocks read f16, "
                "bf16 or f32; use c=bf16"
            )
        usual = {
            "param": self.param,
            "partials": BINARY16 if self.in_quarters else wide(self.compute),
            "accumulator": self.param,
            "output": self.activations,
        }
        for name, fmt in usual.items():
            value = getattr(self, name)
            object.__setattr__(self, name, _field_format(name, fmt if value is None else value))
        if self.param not in (self.activations, BINARY32):
            raise ValueError(
                f"param={self.param}, compute={self.compute}: parameters are kept in the format of "
                "activations or in binary32; change one"
            )
        if self.in_quarters and self.partials != BINARY16:
            raise ValueError(
                f"partials={self.partials}: products of quarters keep binary16 partials; use those"
            )
        if (self.partials == BINARY64) != (self.compute == BINARY64):
            raise ValueError(
                f"compute={self.compute}, partials={self.partials}: binary64 is the reference and "
                "computes with binary64 partials alone; change one"
            )
        if not self.in_quarters and self.partials == BINARY16:
            self._half_partials()

    def _half_partials(self) -> None:
        """Kept where they can be; raised to a wider output's type, with a warning."""
        if self.compute == BFLOAT16:
            raise ValueError(
                f"partials={self.partials} go with binary16 inputs only, got {self.compute}; "
                "use binary32"
            )
        if BINARY32 in (self.compute, self.output):
            warnings.warn(
                f"partials={self.partials} are narrower than the output; products keep binary32 "
                "partials. Leave them at binary32, or choose output=binary16",
                RuntimeWarning,
                stacklevel=4,
            )
            object.__setattr__(self, "partials", BINARY32)

    @classmethod
    def parse(cls, text: str) -> Policy:
        """A policy from its string form; param and compute are f32 where they are not mentioned.

        >>> Policy.parse("p=half,c=binary16") == FP16
        True
        """
        if not isinstance(text, str):
            raise TypeError(f"text={text!r} is no text; give formats as in 'p=f32,c=f16,part=f32'")
        formats: dict[str, Any] = {}
        for item in text.split(","):
            key, _, short = item.partition("=")
            if key == "recipe":
                formats[key] = find_recipe(short)
                continue
            fmt = _named(short)
            allowed = _ALLOWED.get(_KEYS.get(key, ""), ())
            if fmt is None or _SHORT.get(fmt, "") not in allowed:
                what = f"{key}= takes" if allowed else f"use {', '.join(_KEYS)} with"
                raise ValueError(
                    f"policy item {item!r} is not known; {what} {'|'.join(allowed or _LONG)}, "
                    "as in p=f32,c=f16,part=f32"
                )
            formats[_KEYS[key]] = fmt
        return cls(**formats)

    # Layers ask at every call, so the comparisons are made once.

    @cached_property
    def in_quarters(self) -> bool:
        """Products take quarters: F143, and F152 backward."""
        return self.compute == F143

    @cached_property
    def has_single_parameters(self) -> bool:
        """Parameters are binary32."""
        return self.param == BINARY32

    @cached_property
    def activations(self) -> Format:
        """In which layers hold values and gradients."""
        return BINARY16 if self.in_quarters else self.compute

    @property
    def default(self) -> Policy:
        """This policy: there are no others."""
        return self

    @property
    def all(self) -> tuple[Policy, ...]:
        """This policy alone."""
        return (self,)

    def of(self, layer: str) -> Policy:
        """This policy, whatever the layer."""
        return self

    def check(self, layers: Collection[str]) -> None:
        """There are no patterns to check."""

    def override(self, layers: Mapping[str, Policy]) -> LayerPolicies:
        """This policy, and others for the layers whose names match these patterns.

        >>> FP16.override({"output": FP32}).of("output") == FP32
        True
        """
        if not isinstance(layers, Mapping):
            raise TypeError(f"layers={layers!r} is no mapping; map patterns of names to policies")
        return LayerPolicies(self, tuple(layers.items()))

    def __str__(self) -> str:
        usual = {"accumulator": self.param, "output": self.activations}
        texts = [
            f"{key}={_SHORT[getattr(self, name)]}"
            for key, name in _KEYS.items()
            if usual.get(name) != getattr(self, name)
        ]
        return ",".join(texts if self.recipe is None else [*texts, f"recipe={self.recipe}"])


@dataclass(frozen=True)
class LayerPolicies:
    """A policy, and others for the layers whose names match a pattern; the first match holds.

    A layer's name is its scope inside the model, as block1/conv; patterns are those of file names,
    and first2 or last2 (`ipu.learn.patterns`). One that matches no layer is refused at the first
    forward pass.

    order    names of layers with weights, of each model that ran; see `in_order`.

    >>> print(FP16.override({"block1/*": MIXED, "output": FP32}))
    p=f16,c=f16,part=f32;block1/*:p=f32,c=f16,part=f32;output:p=f32,c=f32,part=f32
    """

    default: Policy
    layers: tuple[tuple[str, Policy], ...]
    order: tuple[tuple[str, ...], ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for pattern, policy in self.layers:
            if not (isinstance(pattern, str) and isinstance(policy, Policy)):
                raise TypeError(
                    f"layers={pattern!r}: {policy!r} is not a policy; map patterns of names "
                    "to policies"
                )

    @property
    def all(self) -> tuple[Policy, ...]:
        """The default policy and those of the patterns."""
        return (self.default, *(policy for _, policy in self.layers))

    @classmethod
    def parse(cls, text: str) -> LayerPolicies:
        """Policies from their string form.

        >>> LayerPolicies.parse("p=f16,c=f16;output:p=f32").of("output") == FP32
        True
        """
        if not isinstance(text, str):
            raise TypeError(f"text={text!r} is no text; give formats as in 'p=f16;output:p=f32'")
        first, *others = text.split(";")
        layers = []
        for other in others:
            pattern, _, policy = other.partition(":")
            layers.append((pattern, Policy.parse(policy)))
        return cls(Policy.parse(first), tuple(layers))

    def of(self, layer: str) -> Policy:
        """The policy of the layer of that name."""
        matching = self._of_patterns(layer)
        return next(matching, self.default)

    def names(self, layer: str) -> bool:
        """Whether a pattern matches the layer of that name.

        >>> FP16.override({"output": FP32}).names("output"), FP16.override({}).names("output")
        (True, False)
        """
        return next(self._of_patterns(layer), None) is not None

    def _of_patterns(self, layer: str) -> Iterator[Policy]:
        return (policy for pattern, policy in self.layers if self._matches(layer, pattern))

    def check(self, layers: Collection[str]) -> None:
        """Refuse a pattern that no layer matches.

        >>> FP16.override({"ouput": FP32}).check(["hidden", "output"])
        Traceback (most recent call last):
        ...
        ValueError: layers='ouput' matches no layer; did you mean 'output'? There are hidden, output
        """
        check_patterns("layers", (pattern for pattern, _ in self.layers), layers)

    @property
    def needs_order(self) -> bool:
        """Whether a pattern asks for the order of layers, as last2 does."""
        return any(is_by_order(pattern) for pattern, _ in self.layers)

    @cached_property
    def meanings(self) -> dict[str, list[str]]:
        """Blocks or layers of the patterns that ask for an order; none while it is not known.

        >>> FP16.override({"last1": MIXED}).in_order(["hidden", "output"]).meanings
        {'last1': ['output']}
        """
        by_order = [pattern for pattern, _ in self.layers if is_by_order(pattern)]
        return {
            pattern: list(dict.fromkeys(n for layers in self.order for n in meant(pattern, layers)))
            for pattern in by_order if self.order
        }

    def in_order(self, *models: Sequence[str]) -> LayerPolicies:
        """With the names of each model's layers with weights, in their order.

        Raises    ValueError where a pattern asks for more than a model has.
        """
        ordered = replace(self, order=tuple(tuple(dict.fromkeys(layers)) for layers in models))
        ordered.meanings  # noqa: B018 - which refuses what there is not
        return ordered

    def _matches(self, layer: str, pattern: str) -> bool:
        names = self.meanings.get(pattern)
        if names is None:
            return matches(layer, pattern)
        return any(layer == name or layer.startswith((f"{name}.", f"{name}/")) for name in names)

    def __str__(self) -> str:
        return ";".join([str(self.default), *(f"{name}:{p}" for name, p in self.layers)])


FP32 = Policy()
FP64 = Policy(param=BINARY64, compute=BINARY64)
FP16 = Policy(param=BINARY16, compute=BINARY16)
MIXED = Policy(param=BINARY32, compute=BINARY16)
FP8 = Policy(param=BINARY32, compute=F143)
BF16_MIXED = Policy(param=BINARY32, compute=BFLOAT16)

_NAMED = {
    "fp8": FP8, "fp16": FP16, "fp32": FP32, "fp64": FP64, "mixed": MIXED, "bf16-mixed": BF16_MIXED,
}


def recipe_policy(recipe: Recipe | str) -> Policy:
    """Products of weights by a recipe, everything else in bfloat16, parameters in binary32.

    >>> print(recipe_policy("nvfp4"))
    p=f32,c=bf16,part=f32,recipe=nvfp4
    """
    return Policy(param=BINARY32, compute=BFLOAT16, recipe=find_recipe(recipe))


#: How a recipe's name goes on.
_HINT = "use RECIPE[+ADDITION][+LAYER=f32|bf16|RECIPE], as in nvfp4+wgrad=bf16+head=bf16"


def with_layer(
    policy: Policy | LayerPolicies, pattern: str, of_layer: Policy = FP32
) -> LayerPolicies:
    """A policy with another one for the layers of a pattern, before all others."""
    layers = policy.layers if isinstance(policy, LayerPolicies) else ()
    others = (layer for layer in layers if layer[0] != pattern)  # no layer would reach that one
    return LayerPolicies(policy.default, ((pattern, of_layer), *others))


def with_addition(
    policy: Policy | LayerPolicies, addition: str, text: str, find: Callable[[str], object]
) -> Policy | LayerPolicies:
    """A policy with an addition to its recipe, or with LAYER=POLICY.

    Beside a recipe, LAYER=bf16 leaves parameters as they are and its products out of blocks. LAYER
    may be last2: the last two blocks, or layers (`ipu.learn.patterns`).

    text      that the addition stands in, for errors.
    find      the policy that a text means.
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
    of_layer = find(value)
    if not isinstance(of_layer, Policy):
        raise ValueError(f"policy={text!r}: {value!r} is not a policy of one layer; {_HINT}")
    return with_layer(policy, key, of_layer)


def with_additions(text: str, find: Callable[[str], object]) -> Policy | LayerPolicies:
    """The policy of a recipe's name and what is added to it; see `with_addition`."""
    name, *additions = text.split("+")
    result: Policy | LayerPolicies = recipe_policy(name.strip())
    for addition in additions:
        result = with_addition(result, addition.strip(), text, find)
    return result


def _of_one_layer(text: str) -> PolicyLike:
    """The policy behind LAYER=, also by the short name of a format."""
    if text in _LONG:
        return Policy.parse(f"c={text}" if text == "f8" else f"p={text},c={text}")
    return find_policy(text)


def find_policy(policy: PolicyLike | str) -> PolicyLike:
    """A policy as it is, by its name, from its string form, or a recipe with additions.

    >>> find_policy("nvfp4+output=bf16").of("output").recipe is None
    True
    >>> find_policy("fp16") is FP16, str(find_policy("p=f16,c=f16;output:p=f32"))
    (True, 'p=f16,c=f16,part=f32;output:p=f32,c=f32,part=f32')
    >>> find_policy(16)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    TypeError: policy=16 is not a policy; use one of fp8, fp16, fp32, fp64, mixed, bf16-mixed, ...
    """
    if isinstance(policy, str):
        named = _NAMED.get(policy.strip().lower())
        if named is not None:
            return named
        if is_recipe(policy):
            return with_additions(policy, _of_one_layer)
        if "=" in policy:
            return LayerPolicies.parse(policy) if ";" in policy else Policy.parse(policy)
    elif all(hasattr(policy, name) for name in ("default", "all", "of", "check")):
        return policy
    kind = ValueError if isinstance(policy, str) else TypeError
    raise kind(
        f"policy={policy!r} is not a policy; use one of {', '.join(_NAMED)}, a recipe as nvfp4, "
        "or formats as in 'p=f32,c=f16,part=f32'"
    )
