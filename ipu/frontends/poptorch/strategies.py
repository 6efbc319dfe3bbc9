"""Execution strategies: which blocks form a stage, on which IPU, and how stages follow each other.

Source    Graphcore's PopTorch, python/options.py and its user guide: arguments, rules for blocks
          without a stage, texts of errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ipu.frontends.poptorch.enums import AutoStage, Liveness

__all__ = [
    "ParallelPhasedExecution", "Phase", "PipelinedExecution", "SerialPhasedExecution",
    "ShardedExecution", "Stage", "Strategy", "StageOf", "names_of",
]


class StageOf(NamedTuple):
    """Where a block belongs.

    number    order of the stage among those of the strategy.
    """

    number: int
    ipu: int


class Stage:
    """Blocks that run on one IPU, one after the other.

    >>> Stage("B1", "B2").ipu(0)
    Stage('B1', 'B2').ipu(0)
    """

    def __init__(self, *block_ids: str) -> None:
        for block in block_ids:
            if not isinstance(block, str):
                raise TypeError(f"Block IDs are supposed to be strings but got {block_ids}")
        if not block_ids:
            raise ValueError("Stage() has no blocks; name at least one: Stage('B1')")
        twice = next((b for b in block_ids if block_ids.count(b) > 1), None)
        if twice is not None:
            raise ValueError(f"{twice} is twice in one stage; name each block once")
        self._blocks = block_ids
        self._ipu: int | None = None

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of its blocks."""
        return self._blocks

    def ipu(self, ipu: int) -> Stage:
        """Run on this IPU."""
        if isinstance(ipu, bool) or not isinstance(ipu, int):
            raise TypeError(f"ipu={ipu!r} is not the number of an IPU; use an int")
        if ipu < 0:
            raise ValueError(f"ipu={ipu} is not the number of an IPU; use 0 or more")
        self._ipu = ipu
        return self

    def __repr__(self) -> str:
        blocks = ", ".join(map(repr, self._blocks))
        return f"Stage({blocks})" + (f".ipu({self._ipu})" if self._ipu is not None else "")


def _stage(argument: Any) -> Stage:
    """A Stage, a name, or several names of one stage."""
    if isinstance(argument, Stage):
        return argument
    if isinstance(argument, str):
        return Stage(argument)
    if isinstance(argument, Iterable):
        return Stage(*argument)
    raise TypeError(f"{argument!r} is no stage; use poptorch.Stage, a block's name or a list of it")


def names_of(strategy: Strategy) -> str:
    """The blocks that a strategy lists."""
    return ", ".join(block for stage in strategy.stages for block in stage.blocks)


class Strategy:
    """What the strategies share.

    stages    in order; empty: every block is a stage of its own, by the rule of `auto`.

    Raises    ValueError for a block in two stages.
    """

    #: Schedule of `ipu.plan`, and the word in plans.
    schedule = "popart"

    def __init__(self, stages: Sequence[Stage], auto: AutoStage = AutoStage.SameAsIpu) -> None:
        self.stages = tuple(stages)
        self.auto = auto
        self._of: dict[str, StageOf] = {}
        for number, stage in enumerate(self.stages):
            for block in stage.blocks:
                if block in self._of:
                    raise ValueError(f"{block} associated with more than one stage")
                self._of[block] = StageOf(number, self._ipu_of(number))
        self._auto: dict[str, StageOf] = {}

    def _ipu_of(self, number: int) -> int:
        ipu = self.stages[number]._ipu
        return number if ipu is None else ipu

    def stage(self, block_id: str) -> Stage:
        """The stage of a block that the strategy lists."""
        if block_id not in self._of:
            raise ValueError(f"Unknown block {block_id}; known are: {names_of(self) or 'none'}")
        return self.stages[self._of[block_id].number]

    def forget(self) -> None:
        """No block has been met yet: before a model is traced."""
        self._auto.clear()

    def locate(self, block_id: str, ipu_id: int | None) -> StageOf:
        """The stage of a block of a model.

        Raises    ValueError for a block of no stage, and for one without an IPU that none lists.
        """
        if self.stages:
            return self._listed(block_id, ipu_id)
        location = self._auto.get(block_id)
        if location is not None:
            return location
        if self.auto is AutoStage.SameAsIpu:
            if ipu_id is None:
                raise ValueError(
                    "poptorch.AutoStage.SameAsIpu was selected but no IPU was specified for block "
                    f"{block_id}; use Block({block_id!r}, ipu_id=…), or list stages: "
                    f"PipelinedExecution({block_id!r}, …)"
                )
            stage = StageOf(ipu_id, ipu_id)
        else:
            number = len(self._auto)
            stage = StageOf(number, number if ipu_id is None else ipu_id)
        self._auto[block_id] = stage
        return stage

    def _listed(self, block_id: str, ipu_id: int | None) -> StageOf:
        if block_id not in self._of:
            raise ValueError(
                f"Unknown Block '{block_id}' list of expected Blocks: {list(self._of)}; "
                "put it into a stage of the strategy"
            )
        location = self._of[block_id]
        if ipu_id is not None and self.stages[location.number]._ipu is None:
            return StageOf(location.number, ipu_id)
        return location

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.stages)) or self.auto
        return f"{type(self).__name__}({inside})"


class PipelinedExecution(Strategy):
    """Stages work on several micro-batches at a time.

    args    stages, names of blocks, lists of names; or an `AutoStage`; or nothing: SameAsIpu.

    >>> PipelinedExecution("B1", ["B2", "B3"])
    PipelinedExecution(Stage('B1'), Stage('B2', 'B3'))
    """

    def __init__(self, *args: Any) -> None:
        if len(args) == 1 and isinstance(args[0], AutoStage):
            super().__init__((), args[0])
        else:
            super().__init__([_stage(stage) for stage in args])


class ShardedExecution(PipelinedExecution):
    """One micro-batch at a time goes through all stages; one IPU works at a time.

    >>> ShardedExecution("B1", "B2")
    ShardedExecution(Stage('B1'), Stage('B2'))
    """

    schedule = "sequential"


class Phase:
    """Stages that run in parallel, each on its IPU; several names are the blocks of one stage.

    >>> Phase(Stage("A"), Stage("B"))
    Phase(Stage('A'), Stage('B'))
    """

    def __init__(self, *arg: Any) -> None:
        if all(isinstance(item, Stage) for item in arg) and arg:
            self.stages = tuple(arg)
        elif all(isinstance(item, str) for item in arg) and arg:
            self.stages = (Stage(*arg),)
        else:
            kinds = [type(item).__name__ for item in arg]
            raise TypeError(f"All arguments must either be block ids (strings) or Stages: {kinds}")

    def stage(self, idx: int) -> Stage:
        """Its stage of that number."""
        stage: Stage = self.stages[idx]
        return stage

    def ipus(self, *ipus: int) -> Phase:
        """One IPU for each stage."""
        if len(ipus) != len(self.stages):
            raise ValueError(
                f"Phase contains {len(self.stages)} stages but you provided {len(ipus)} ipus"
            )
        for stage, ipu in zip(self.stages, ipus, strict=True):
            stage.ipu(ipu)
        return self

    def __repr__(self) -> str:
        return f"Phase({', '.join(map(repr, self.stages))})"


class _PhasedExecution(Strategy):
    """Phases run one after the other; what a phase needs comes from remote memory.

    Modelled as stages that run one after the other; a phase's own stages are not run side by side
    in the account of time, and liveness decides what is counted in remote memory.
    """

    schedule = "sequential"

    def __init__(self, *phases: Any) -> None:
        rows = list(phases[0]) if len(phases) == 1 and _is_rows(phases[0]) else list(phases)
        if not rows:
            raise ValueError(
                "There is currently no AutoStage for PhasedExecution, please explicitly specify "
                "the phases"
            )
        self._phases = [
            row if isinstance(row, Phase)
            else Phase(*(row if isinstance(row, (list, tuple)) else [row]))
            for row in rows
        ]
        self.liveness = Liveness.AlwaysLive
        self.separate_backward = False
        super().__init__([stage for phase in self._phases for stage in phase.stages])

    def _ipu_of(self, number: int) -> int:
        """Without an IPU a stage runs on that of its place in the phase."""
        ipu = self.stages[number]._ipu
        if ipu is not None:
            return ipu
        for phase in self._phases:
            if number < len(phase.stages):
                return number
            number -= len(phase.stages)
        raise AssertionError(number)

    def phase(self, phase: int) -> Phase:
        """The phase of that number."""
        if isinstance(phase, bool) or not isinstance(phase, int) or phase < 0:
            raise ValueError("Phases are identified by positive integers")
        if phase >= len(self._phases):
            raise ValueError(f"phase={phase}: there are {len(self._phases)} phases, from 0")
        return self._phases[phase]

    def useSeparateBackwardPhase(self, use: bool = True) -> _PhasedExecution:
        """Backward phases have numbers of their own: the last forward phase is not shared."""
        _check_bool("use", use)
        self.separate_backward = use
        return self

    def locate(self, block_id: str, ipu_id: int | None) -> StageOf:
        number = self._listed(block_id, ipu_id).number
        ipu = self.stages[number]._ipu
        if ipu is None and ipu_id is not None:
            return StageOf(number, ipu_id)
        return StageOf(number, self._ipu_of(number))

    @property
    def offload(self) -> frozenset[str]:
        """What lives in remote memory between phases."""
        if self.liveness is Liveness.AlwaysLive:
            return frozenset()
        if self.liveness is Liveness.OffChipAfterEachPhase:
            return frozenset({"activations", "weights", "state"})
        return frozenset({"activations"})

    def backward_phases(self) -> tuple[int, ...]:
        """Number of the backward phase of each forward phase.

        >>> SerialPhasedExecution("A", "B", "C").backward_phases()
        (4, 3, 2)
        """
        n = len(self._phases)
        first = 2 * (n - 1 + self.separate_backward)
        return tuple(first - i for i in range(n))


def _is_rows(argument: Any) -> bool:
    """A list of phases, as the guide passes one."""
    return isinstance(argument, (list, tuple)) and all(
        isinstance(row, (Phase, list, tuple)) for row in argument
    )


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is not a bool; use True or False")


class ParallelPhasedExecution(_PhasedExecution):
    """Phases alternate between two groups of IPUs: even phases on even IPUs, odd ones on odd.

    >>> phases = ParallelPhasedExecution(Phase(Stage("A0"), Stage("A1")), Phase(Stage("B0")))
    >>> phases.phase(0).ipus(0, 2)
    Phase(Stage('A0').ipu(0), Stage('A1').ipu(2))
    >>> sorted(phases.sendTensorsOffChipAfterFwd().offload)
    ['activations']
    """

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> ParallelPhasedExecution:
        """Activations go to remote memory after the forward pass."""
        _check_bool("off_chip", off_chip)
        self.liveness = Liveness.OffChipAfterFwd if off_chip else Liveness.AlwaysLive
        return self


class SerialPhasedExecution(_PhasedExecution):
    """All phases run one after the other on one group of IPUs.

    >>> SerialPhasedExecution("A", "B", "C").backward_phases()
    (4, 3, 2)
    """

    def setTensorsLiveness(self, liveness: Liveness) -> SerialPhasedExecution:
        """What stays on the chip between phases."""
        if not isinstance(liveness, Liveness):
            raise TypeError(f"liveness={liveness!r} is not a poptorch.Liveness")
        self.liveness = liveness
        return self
