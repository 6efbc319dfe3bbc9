"""Which unit computes a product, where the call does not say.

By the K-channels of the product, that is input channels forward and output channels for the
gradient to the input. Products of matrices and gradients to weights take the AMP.

The rule is ours (ASSUMED): Graphcore's planner weighs costs. Its further methods, dot products of
halves and outer products, are not modelled.

Source    docs/semantics.md §5; poplibs, ConvVertexType.cpp.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

from fpsim.records.evidence import Evidence, Fact
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    F143,
    F152,
    Format,
    find_number_format,
)
from fpsim.records.geometry import Pair, Stride, geometry
from fpsim.records.types import Shape
from fpsim.records.units import MatrixUnit, find_unit, with_partials
from ipu.machine.target import Target
from ipu.machine.units import amp  # noqa: F401  (registers the units named below)

__all__ = [
    "PARTIALS",
    "RULE",
    "ConvolutionTraits",
    "choose",
    "find_partials",
    "fitting_partials",
    "kinds",
    "strides",
]

RULE = Fact(
    "AMP from 4 channels on in one group; SLIC up to 4 per group and stride 2; else vector MAC",
    Evidence.ASSUMED, "docs/semantics.md §5; override with unit=",
)

#: Formats as the names of units write them.
_SHORT = {BINARY16: "F16", BINARY32: "F32", BFLOAT16: "BF16", F143: "F8", F152: "F8"}

#: Formats of partials by the words of poplibs' options.
PARTIALS = {"half": BINARY16, "float": BINARY32}


class ConvolutionTraits(NamedTuple):
    """What the rule reads of a convolution: K-channels per group, groups, the larger stride."""

    channels: int
    groups: int
    stride: int

    @classmethod
    def of(
        cls, kernel: Shape, groups: int, stride: Stride, *, of_outputs: bool
    ) -> ConvolutionTraits | None:
        """Of the shape of the kernels; None for one that the convolution is going to refuse.

        of_outputs    the product sums over the output channels.
        """
        if len(kernel) != 4:
            return None
        channels = kernel[3] // max(groups, 1) if of_outputs else kernel[2]
        return cls(channels, groups, max(strides(stride)))


def strides(stride: Stride) -> Pair:
    """Down and across; other values than strides are refused.

    >>> strides(2)
    (2, 2)
    """
    return geometry((1, 1), (1, 1), stride, "SAME").stride


def kinds(inputs: Format, traits: ConvolutionTraits | None) -> tuple[str, ...]:
    """Units for a product in order of preference; the first that the target has is taken.

    >>> kinds(BINARY16, ConvolutionTraits(channels=16, groups=1, stride=1))
    ('AMP',)
    >>> kinds(BINARY16, ConvolutionTraits(3, 1, 2))
    ('SLIC', 'VMAC', 'AMP')
    """
    if traits is None or (traits.channels >= 4 and traits.groups == 1):
        return ("AMP",)
    if traits.channels <= 4 and traits.stride <= 2 and inputs != BINARY32:
        return ("SLIC", "VMAC", "AMP")
    return ("VMAC", "AMP")


def find_partials(option: Format | str) -> Format:
    """A format of partials, its name, or what poplibs' option partialsType calls it: half or float.

    >>> print(find_partials("half"))
    binary16
    """
    if option is BINARY16 or option is BINARY32:
        return option
    with suppress(TypeError, ValueError):
        fmt = find_number_format(PARTIALS.get(option, option) if type(option) is str else option)
        if fmt in PARTIALS.values():
            return fmt
    raise ValueError(
        f"partials={option} is not a format of partials; use BINARY16 or BINARY32, or the words "
        "half and float"
    )


def fitting_partials(inputs: Format, wanted: Format, to: Format) -> Format:
    """The partials nearest to those wanted: as the inputs allow, and no narrower than the result.

    >>> print(fitting_partials(BINARY16, BINARY16, to=BINARY16))
    binary16
    >>> print(fitting_partials(BINARY16, BINARY16, to=BINARY32))
    binary32
    """
    if inputs is not BINARY16 and inputs != BINARY16:
        return BINARY16 if inputs in (F143, F152) else BINARY32
    return BINARY32 if wanted.precision < to.precision else wanted


def choose(
    target: Target,
    inputs: Format,
    partials: Format,
    preset: str,
    traits: ConvolutionTraits | None = None,
) -> MatrixUnit:
    """The record for these inputs and partials; traits None: a product of matrices.

    Raises    ValueError for partials or inputs that no unit of the target has.

    >>> from ipu.machine.target import MK2
    >>> choose(MK2, BINARY16, BINARY16, "exact").name
    'AMP_F16_F16.exact'
    """
    if inputs not in _SHORT or partials not in _SHORT:
        wrong = inputs if inputs not in _SHORT else partials
        raise ValueError(
            f"{wrong} is not an input of any unit of an IPU; use {', '.join(target.units)}"
        )
    for kind in kinds(inputs, traits):
        offered = [u for u in target.units if u.startswith(f"{kind}_{_SHORT[inputs]}_")]
        if offered:
            return _with_preset(with_partials(find_unit(offered[0]), partials), preset)
    raise ValueError(
        f"target={target.name} has no unit for {inputs}; use {', '.join(target.units)}"
    )


def _with_preset(unit: MatrixUnit, preset: str) -> MatrixUnit:
    """The unit with that preset; a unit without presets, whose arithmetic is known, as it is."""
    return find_unit(f"{unit.name}.{preset}") if unit.window is not None else unit
