"""What a user asks of a run, before there is a device."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from ipu.machine.control import FpCtl
from ipu.machine.target import HYPOTHETICAL, MK2, Target, find_target
from ipu.run.changes import NONE, Changes
from ipu.run.policies import PolicyArgument, find_policy, recipes_of
from ipu.run.restoring import NOTHING_RESTORED, Restoring
from ipu.run.ways import Way

__all__ = ["RunOptions"]

_TIES = ("first", "all")
_FOUND_INF = ("values", "status")
#: Options that are True or False.
_SWITCHES = ("sr", "count", "nanoo", "traps", "check_memory")
#: Options that a device takes under the same names.
_OF_DEVICES = ("seed", "count", "preset", "f32_denormals", "max_nan", "sums")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What a user asks of a run.

    policy    formats by layer: a text as "p=f16,c=f16,part=f16", "f16", "fp32", a `Policy`, or a
              mapping from patterns of layers to these.
    sr        stochastic rounding; None: as the program says.
    seed      of random bits.
    count     count flags, zeros and subnormals by layer and direction.
    target    as in `ipu.machine.Device`, as are preset, f32_denormals, max_nan and sums; None: mk2,
              or hypothetical for a policy with products in blocks, which no IPU has.
    ties      of maximum pooling: "first", as frameworks, or "all", as the machine's own rule.
    nanoo     overflow gives NaN; else it saturates.
    traps     invalid operations, divisions by zero and overflow stop the program where they occur.
    found_inf what loss scalers look at: the "values" of gradients, or the "status" register.
    changes   of the program from outside.
    check_memory    a program that does not fit the memory of an IPU is refused.
    restoring sites that a diagnosis gives back to binary32.

    Raises    ValueError for a value that is not known, TypeError for one of another kind.

    >>> RunOptions(ties="last")
    Traceback (most recent call last):
    ...
    ValueError: ties='last' is not known; use first or all
    """

    policy: PolicyArgument = "f32"
    sr: bool | None = False
    seed: int = 0
    count: bool = False
    target: Target | str | None = None
    ties: str = "first"
    nanoo: bool = False
    traps: bool = False
    found_inf: str = "values"
    preset: str = "window"
    f32_denormals: str = "flush"
    max_nan: str = "number"
    sums: str = "spread"
    changes: Changes = NONE
    check_memory: bool = True
    restoring: Restoring = NOTHING_RESTORED

    def __post_init__(self) -> None:
        policy = find_policy(self.policy)
        usual = HYPOTHETICAL if recipes_of(policy) else MK2
        object.__setattr__(self, "target", find_target(self.target or usual))
        for name in _SWITCHES:
            value = getattr(self, name)
            if not (isinstance(value, bool) or (name == "sr" and value is None)):
                raise TypeError(f"{name}={value!r} is neither True nor False")
        if not isinstance(self.changes, Changes):
            raise TypeError(
                f"changes={self.changes!r} is no fpsim.torch.Changes; as in Changes(eps=1e-4)"
            )
        if self.ties not in _TIES:
            raise ValueError(f"ties={self.ties!r} is not known; use first or all")
        if self.found_inf not in _FOUND_INF:
            raise ValueError(f"found_inf={self.found_inf!r} is not known; use values or status")

    @property
    def machine(self) -> Target:
        """The target, which a policy chooses where nobody names it."""
        return find_target(self.target or MK2)

    @property
    def way(self) -> Way:
        """Policy, rounding and changes together."""
        return Way(find_policy(self.policy), bool(self.sr), self.changes)

    def in_way(self, way: Way, seed: int) -> Self:
        """These options in another way and with another seed, for a trial: it counts, and no trap
        stops it.

        >>> RunOptions(traps=True).in_way(Way.parse("fp16+sr"), 3).sr
        True
        """
        return replace(
            self, policy=way.policy, sr=way.sr, changes=way.changes, seed=seed, count=True,
            traps=False,
        )

    @property
    def control(self) -> FpCtl:
        """The control register that they ask for."""
        traps = self.traps
        return FpCtl(inv=traps, div0=traps, oflo=traps, esr=bool(self.sr), nanoo=self.nanoo)

    @property
    def device_options(self) -> dict[str, Any]:
        """The keywords of a `Device` among them."""
        return {name: getattr(self, name) for name in _OF_DEVICES}
