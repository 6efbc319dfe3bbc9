"""Sites of a program given back to binary32, one by one: what a diagnosis varies between runs.

A site is a layer and a role there:

    forward      results of operations going forward, and the casts of what they read.
    backward     those of the backward passes.
    parameters   parameters of the layer, and with them their updates and states.
    update       the arithmetic and the states of the optimisers, parameters stay as they are.
    sums         partial sums inside of products, where the policy has them in binary16.
    layer        all of a layer, where a front end computes it in one format.

A site that is restored computes in binary32; everything else keeps the policy, its places and its
random bits. It may be restored in a window of steps alone (forward, backward and sums, where a
front end asks for the formats in each step), and by a *dose*: its results are then rounded to a
format between its own and binary32, so that some of the bits are given back. The control of a site
moves every second number there by a unit in the last place: a harm that goes away by that was cured
by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.context import Context
from fpsim.records.formats import BINARY16, BINARY32, Format
from fpsim.state.processor import usual_arithmetic
from ipu.learn.policy import FP32, Policy, PolicyLike
from ipu.run.noise import ResultNoise

__all__ = ["BACKWARD", "FORWARD", "LAYER", "NOTHING_RESTORED", "PARAMETERS", "SUMS", "UPDATE",
           "Alter", "PrecisionSite", "Restoring", "nudged", "role_of", "sites_of"]

FORWARD, BACKWARD, PARAMETERS = "forward", "backward", "parameters"
UPDATE, SUMS, LAYER = "update", "sums", "layer"
#: The role of operations by direction; those of optimisers have the formats of their tensors.
_ROLES = {"forward": FORWARD, "evaluation": FORWARD, "other": FORWARD, "recompute": FORWARD,
          "backward": BACKWARD}


#: Results of a site, of a format, as others.
Alter = Callable[[NDArray[np.float32], Format], NDArray[np.float32]]


class PrecisionSite(NamedTuple):
    """A layer and a role.

    >>> print(PrecisionSite("net.fc1", FORWARD))
    net.fc1 (forward)
    """

    layer: str
    role: str

    def __str__(self) -> str:
        return f"{self.layer or 'outside of modules'} ({self.role})"


@dataclass(frozen=True)
class Restoring:
    """The sites of a run that compute in binary32, and those that are moved by a unit.

    steps    the first of them in which they are restored, and the one behind the last; None: all.
    dose     what results of restored sites are rounded to; None: they stay binary32.
    noise    moves the results of all operations (`ipu.run.noise`); None: nothing does.

    >>> restoring = Restoring(frozenset([PrecisionSite("fc1", FORWARD)]))
    >>> low = Policy.parse("p=f16,c=f16,part=f32")
    >>> print(restoring.policy(low, "fc1", "forward"), restoring.policy(low, "fc1", "backward"))
    p=f32,c=f32,part=f32 p=f16,c=f16,part=f32
    """

    sites: frozenset[PrecisionSite] = frozenset()
    moved: frozenset[PrecisionSite] = frozenset()
    steps: tuple[int, int] | None = None
    dose: Format | None = None
    noise: ResultNoise | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the formats of the run are as its policy says."""
        return not (self.sites or self.moved)

    def policy(self, policy: Policy, layer: str, direction: str, step: int = 0) -> Policy:
        """The policy of operations of a layer and direction in a step."""
        wide_parameters = PrecisionSite(layer, PARAMETERS) in self.sites or (
            direction == "optimizer" and self.widens_updates)
        param = BINARY32 if wide_parameters else policy.param
        role = _ROLES.get(direction) if self._is_in_window(step) else None
        if role is not None and PrecisionSite(layer, role) in self.sites:
            return FP32  # parameters keep their format, and are read as they are
        has_sums = role is not None and PrecisionSite(layer, SUMS) in self.sites
        if has_sums and policy.partials == BINARY16:
            return replace(policy, param=param, partials=BINARY32)
        return replace(policy, param=param) if wide_parameters else policy

    def _is_in_window(self, step: int) -> bool:
        return self.steps is None or self.steps[0] <= step < self.steps[1]

    def altering(self, layer: str, direction: str, step: int = 0) -> Alter | None:
        """What is done to the results of a layer and direction in a step; None: nothing."""
        if self.noise is not None:
            return self.noise
        sites = {PrecisionSite(layer, role_of(direction)), PrecisionSite(layer, LAYER)}
        if self.moved and sites & self.moved:
            return nudged
        if self.dose is not None and sites & self.sites and self._is_in_window(step):
            return partial(_rounded, self.dose)
        return None

    @property
    def widens_updates(self) -> bool:
        """Whether optimisers compute in binary32."""
        return any(site.role == UPDATE for site in self.sites)


#: A run as its policy says.
NOTHING_RESTORED = Restoring()


def _rounded(
    dose: Format, values: NDArray[np.float32], fmt: Format
) -> NDArray[np.float32]:
    """Numbers to nearest in a dose, its largest ones where they are beyond."""
    rounded: NDArray[np.float32] = Context(dose, overflow="saturate").array(values).carrier
    return rounded


@usual_arithmetic
def nudged(values: NDArray[np.float32], fmt: Format) -> NDArray[np.float32]:
    """Every second number moved up by a unit in its last place; zeros and the largest ones stay.

    >>> nudged(np.float32([1, 1, 2048, 0, 65504]), BINARY16).tolist()
    [1.0009765625, 1.0, 2050.0, 0.0, 65504.0]
    """
    flat = np.array(values, np.float32).ravel()
    _, exponents = np.frexp(flat)
    units = np.ldexp(np.float32(1), np.maximum(exponents - 1, fmt.emin) - (fmt.precision - 1))
    with np.errstate(over="ignore", invalid="ignore"):
        higher = (flat + units).astype(np.float32)
    is_moved = (np.arange(flat.size) % 2 == 0) & (flat != 0) & np.isfinite(flat)
    is_moved &= higher <= np.float32(fmt.max)
    return np.where(is_moved, higher, flat).reshape(np.shape(values))


def role_of(direction: str) -> str:
    """The role of operations of a direction.

    >>> role_of("recompute"), role_of("optimizer")
    ('forward', 'update')
    """
    return _ROLES.get(direction, UPDATE)


def sites_of(report: Mapping[str, Any], policy: PolicyLike) -> list[PrecisionSite]:
    """The sites of a run that compute in fewer bits than binary32, neighbours of a layer together.

    report    of that run, which has counted.
    """
    return list(dict.fromkeys(_sites(report, policy)))


def _sites(report: Mapping[str, Any], policy: PolicyLike) -> Iterator[PrecisionSite]:
    parameters: Sequence[str] = list(report.get("parameters", ()))
    for layer in dict.fromkeys([*report["layers"], *parameters]):
        of_layer, directions = policy.of(layer), report["layers"].get(layer, {})
        if directions.keys() & _ROLES.keys() and of_layer.compute != BINARY32:
            # Both: moves and selections, which nobody counts, cast what they read too.
            yield PrecisionSite(layer, FORWARD)
            yield PrecisionSite(layer, BACKWARD)
        if of_layer.partials == BINARY16 and layer in parameters:
            yield PrecisionSite(layer, SUMS)
        if layer in parameters and of_layer.param != BINARY32:
            yield PrecisionSite(layer, PARAMETERS)
    if policy.default.param != FP32.param:
        yield PrecisionSite("optimizer", UPDATE)
