"""Whether all instances of a launch arrive: one that stays away is named, and the launch ends.

An instance that waits for the others, in MPI's start or in joining them, does so for `timeout`
seconds at most, and for one that has ended not at all. Instances on other computers tell nothing;
they are named together where none of this computer is behind.

Source    `ipu.members.arrival`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ipu.members.arrival import ArrivalStage, arrivals

__all__ = ["Arrivals"]

#: Seconds that a status, and the sentences of instances that wait, have to come by themselves.
SETTLE = 2.0
#: Seconds that workers who can name a missing one themselves have to do so.
MARGIN = 5.0


class _Instance(NamedTuple):
    """How far an instance has come, and whether it has ended there."""

    stage: ArrivalStage
    has_ended: bool


class Arrivals:
    """The instances of a launch on their way to the training.

    folder     that instances tell in.
    size       their number.
    timeout    seconds that one waits for the others.
    """

    def __init__(self, folder: Path, size: int, timeout: float) -> None:
        self.folder, self.size, self.timeout = folder, size, timeout
        #: When each wait was noticed: of an instance in a stage, and for one that has ended.
        self._noticed: dict[tuple[int, ArrivalStage], float] = {}
        self._are_complete = False

    def missing(self) -> str | None:
        """A sentence about instances that the others wait for in vain, else None."""
        if self._are_complete:
            return None
        instances = self._instances()
        joined = sum(x.stage is ArrivalStage.HAS_JOINED for x in instances.values())
        self._are_complete = joined == self.size
        now, before = time.monotonic(), self._noticed
        waiting = {
            (i, instance.stage)
            for i, instance in instances.items()
            if instance.stage in (ArrivalStage.STARTS_MPI, ArrivalStage.JOINS)
            and not instance.has_ended
        }
        gone = {(i, ArrivalStage.ENDED) for i, instance in instances.items() if instance.has_ended
                and any(instance.stage < stage for _, stage in waiting)}
        self._noticed = {key: before.get(key, now) for key in waiting | gone}
        late = [i for i, stage in gone if now - self._noticed[i, stage] > SETTLE]
        if late:
            return _has_ended(late)
        for i, stage in sorted(waiting):
            limit = self.timeout + (MARGIN if stage is ArrivalStage.JOINS else 0)
            if now - self._noticed[i, stage] > limit:
                return self._behind(stage, instances)
        return None

    def ended_early(self) -> str | None:
        """A sentence about an instance that ended on its way, for a launch that has failed.

        It is the first one that ended, where another one waited.
        """
        rows = self._instances()
        ends = [i for i, instance in rows.items() if instance.has_ended]
        first = min(ends, key=lambda i: self._ended_at(i), default=None)
        waits = (ArrivalStage.STARTS_MPI, ArrivalStage.JOINS)
        if first is None or self._are_complete:
            return None
        others = [instance.stage for i, instance in rows.items() if i != first]
        is_early = any(rows[first].stage < stage and stage in waits for stage in others)
        return _has_ended([first]) if is_early else None

    def _instances(self) -> dict[int, _Instance]:
        return {
            i: _Instance(
                max(row - {ArrivalStage.ENDED}, default=ArrivalStage.STARTED),
                ArrivalStage.ENDED in row,
            )
            for i, row in sorted(arrivals(self.folder).items())
        }

    def _ended_at(self, instance: int) -> float:
        return (self.folder / f"{instance}.{ArrivalStage.ENDED.value}").stat().st_mtime

    def _behind(self, stage: ArrivalStage, instances: dict[int, _Instance]) -> str:
        behind = [i for i, instance in instances.items() if instance.stage < stage]
        elsewhere = [i for i in range(self.size) if i not in instances]
        if not behind and not elsewhere:
            return (
                f"{_named(instances)} have waited for each other for {self.timeout:g} s and do not "
                "come together; look at the network between them"
            )
        who = _named(behind) if behind else f"{_named(elsewhere)} of other computers"
        return (
            f"{who} did not join the others within {self.timeout:g} s; look at what holds it up "
            "before it joins, or raise --timeout"
        )


def _has_ended(instances: Iterable[int]) -> str:
    return (
        f"{_named(instances)} ended before joining the others, which wait in vain; run a program "
        "that joins in every instance"
    )


def _named(instances: Iterable[int]) -> str:
    """Instances in a sentence.

    >>> _named([1]), _named([0, 2])
    ('instance 1', 'instances 0, 2')
    """
    numbers = sorted(instances)
    return f"instance{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
