"""The machine of a program: one device, its policy, what has run on it.

A program has one machine, as it has one system of IPUs: the settings of its IPUConfig, under the
`Choices` of the command line or a test. A new configuration makes a new machine, whose random
places count from 0 and which counts into the same report.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any
from weakref import WeakKeyDictionary

from fpsim.records.formats import BINARY32
from ipu.frontends.tensorflow.engine.replica_set import ALONE, ReplicaSet
from ipu.frontends.tensorflow.settings import system
from ipu.frontends.tensorflow.settings.choices import StochasticRoundingBehaviour
from ipu.frontends.tensorflow.settings.system import PROCESS_COUNT, System
from ipu.learn.policy import Policy
from ipu.machine.control import POWER_ON, FpCtl, FpSts
from ipu.machine.device import Device
from ipu.machine.target import MK2, Target, find_target
from ipu.plan.plan import replica_count
from ipu.run.account import Account
from ipu.run.places import Place, PlaceClock
from ipu.run.policies import PolicyArgument, find_policy
from ipu.run.recorder import Recorder

__all__ = ["EVALUATION", "Choices", "Machine", "aside", "choose", "current", "replicas_on"]

#: The direction of launches that train nothing.
EVALUATION = "evaluation"

_TIES = ("first", "all")
_FOUND_INF = ("values", "status")


@dataclass(frozen=True)
class Choices:
    """What a user chooses outside of the program.

    policy     formats by layer: float32 tensors hold values of c, float32 variables of p.
    sr         stochastic rounding; None: as the program's IPUConfig says.
    ties       of maximum pooling: "all", the machine's own rule, or "first", as TensorFlow.
    found_inf  what loss scalers look at: the "values" of gradients, or the "status" register.
    reference  TensorFlow executes the traced programs itself.
    """

    policy: PolicyArgument = "f32"
    sr: bool | None = None
    seed: int = 0
    target: Target | str = MK2
    ties: str = "all"
    preset: str = "window"
    f32_denormals: str = "flush"
    max_nan: str = "number"
    sums: str = "spread"
    count: bool = False
    found_inf: str = "values"
    reference: bool = False

    def __post_init__(self) -> None:
        if self.ties not in _TIES:
            raise ValueError(f"ties={self.ties!r} is not known; use first or all")
        if self.found_inf not in _FOUND_INF:
            raise ValueError(f"found_inf={self.found_inf!r} is not known; use values or status")

    @property
    def lines(self) -> list[str]:
        """What reaches bits, as lines "name: value": equal on all processes of a program."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"policy": find_policy(self.policy), "target": find_target(self.target).name}
        return [f"{name}: {value}" for name, value in values.items() if name != "count"]


def replicas_on(n_ipus: int, ipus: int) -> int:
    """Replicas on that many IPUs of a program that lies on the first `ipus` of its share.

    A share is 1, 2, 4, 8 … IPUs; a program may also lie on all that there are.

    Raises    ValueError where the IPUs are no multiple of the share.
    Source    graphcore/keras, keras/ipu/extensions/extensions_base.py, _get_replication_factor.

    >>> replicas_on(8, 2), replicas_on(4, 3), replicas_on(8, 3), replicas_on(3, 3)
    (4, 1, 2, 1)
    """
    return 1 if n_ipus == ipus else replica_count(n_ipus, 1 << (ipus - 1).bit_length())


class Machine:
    """A device, the policy of its layers, and how far its program has come.

    iteration      iterations of training loops since its places count from 0, over all launches.
    launches       calls of the device so far.
    n_ipus         IPUs of its TensorFlow device.
    taken          IPUs that a replica of its programs takes.
    replicas       copies of the program that run in step here: as many as fit on the IPUs.
    stable_norms   variances are of centred values.
    identical_only stochastic rounding is that of sums over replicas and of updates alone.
    """

    def __init__(
        self, choices: Choices, control: FpCtl = POWER_ON, before: Machine | None = None,
        **partials: Any,
    ) -> None:
        if choices.sr is not None:
            control = replace(control, esr=choices.sr)
        self.choices = choices
        self.policy = find_policy(choices.policy)
        self.device = Device(
            choices.target, control, seed=choices.seed, count=choices.count,
            preset=choices.preset, f32_denormals=choices.f32_denormals,
            max_nan=choices.max_nan, sums=choices.sums, **partials,
        )
        self.clock = PlaceClock()
        self.device.clock = self.clock
        if before is not None:
            self.device.counts = before.device.counts
        formats = {f for p in self.policy.all for f in (p.param, p.compute, p.output)}
        for fmt in formats:
            self.device.context(fmt)  # refuses a format that the target lacks
        self._start_counting()
        #: Every policy is binary32: float32 tensors are what they are.
        self.is_plain = formats == {BINARY32}
        self.account: Account = before.account if before else Account()
        recorder: Recorder | None = before.recorder if before else Recorder(self.device.counts)
        #: Exponents, updates and losses; None where the machine counts not.
        self.recorder: Recorder | None = recorder if choices.count else None
        #: Names of the variables of its programs.
        self.variables: set[str] = set()
        #: Of the random bits.
        self.seed = choices.seed
        self.replicas = 1
        #: All replicas of the program that runs, those of other processes too.
        self.replica_set: ReplicaSet = ALONE
        #: Processes that the program's IPUConfig names.
        self.processes = 1
        self.n_ipus = 1
        self.taken = 1
        self.stable_norms = False
        self.identical_only = False
        #: Iterations that make a step of the optimiser, in the launch that runs.
        self.accumulation = 1
        #: $FP_STS of the steps before this one.
        self.status_before = 0
        #: Values of variables that replicas keep to themselves (engine.replicas).
        self.private: dict[int, Any] = {}
        #: What an estimator's host call moves in a step: tensors, bytes out and back.
        self.host_call: dict[str, int] | None = None
        #: Plans by graph.
        self.plans: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        if before is not None:
            self.count_on(before)

    def _start_counting(self) -> None:
        """Nothing has run."""
        self.launches = self.iteration = 0
        #: Iterations before places began to count from 0.
        self.earlier = 0
        #: Steps of the optimiser that have ended: all, and those since places count from 0.
        self.step = self.placed_steps = 0
        #: Whether the launch that runs trains nothing.
        self.is_evaluating = False
        #: Iterations of such launches: all of them, and those since the last step.
        self.evaluations = self.evaluations_of_step = 0

    def policy_of(self, layer: str, scope: str) -> Policy:
        """The policy of a layer; patterns may also name the scope of its nodes."""
        policy = self.policy.of(layer)
        return self.policy.of(scope) if policy is self.policy.default else policy

    @property
    def lines(self) -> list[str]:
        """What the program's settings add to its choices, as lines "name: value".

        The seed is among them where updates draw random bits; else it is of masks alone, of which
        each process may have others.
        """
        control = self.device.control
        rows = {"control bits": control, "stable norms": self.stable_norms}
        if control.esr:
            rows |= {"seed": self.seed, "iteration": self.iteration}
        return [f"{name}: {value}" for name, value in rows.items()]

    @property
    def first_replica(self) -> int:
        """Number of this process's first replica among all."""
        return self.replica_set.rank * self.replicas

    def take(self, ipus: int) -> None:
        """A program takes so many IPUs; as many replicas run as fit on the machine's."""
        self.taken = max(self.taken, ipus)
        if self.n_ipus > 1:
            self.replicas = min(self.replicas, replicas_on(self.n_ipus, self.taken))

    def count_on(self, before: Machine) -> None:
        """Another machine of the program has run until now: its launches and steps count here."""
        self.launches, self.step = before.launches, before.step
        self.evaluations = before.evaluations
        self.earlier = before.earlier + before.iteration - self.iteration
        self.status_before |= before.status_before | before.device.status_word
        self.host_call = self.host_call or before.host_call

    @property
    def iterations(self) -> int:
        """Iterations of loops on all machines of the program, evaluations too."""
        return self.earlier + self.iteration + self.evaluations

    def advance(self) -> None:
        """An iteration has ended."""
        if self.is_evaluating:
            self._note_exceptions()
            self.evaluations += 1
            self.evaluations_of_step += 1
            self.clock.forget_direction(EVALUATION)
            return
        self.iteration += 1
        if self.iteration % self.accumulation == 0:
            self._note_exceptions()
            self.step += 1
            self.placed_steps += 1
            self.evaluations_of_step = 0
            self.clock.forget()
            self.status_before |= self.device.status_word
            self.device.status_word = 0

    def _note_exceptions(self) -> None:
        if self.recorder is not None and self.device.counts is not None:
            self.recorder.step_done(self.step, self.device.counts)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The launch inside trains nothing: it moves neither steps nor a bit of the training."""
        word, accumulation = self.device.status_word, self.accumulation
        self.device.status_word, self.is_evaluating = 0, True
        try:
            yield
        finally:
            self.status_before |= self.device.status_word
            self.device.status_word, self.is_evaluating = word, False
            self.accumulation = accumulation

    def place(self, name: str, direction: str, replica: int = 0) -> Place:
        """Where a node of this name draws random bits now."""
        if direction == EVALUATION:
            return Place(self.placed_steps, self.evaluations_of_step, replica, name, direction)
        step, micro_batch = divmod(self.iteration, self.accumulation)
        return Place(step, micro_batch, replica, name, direction)

    @property
    def status(self) -> FpSts:
        """$FP_STS: the bits of all operations so far."""
        return FpSts.from_word(self.status_before | self.device.status_word)

    @property
    def has_overflown(self) -> bool:
        """Whether the status register has OFLO or INV since the step began."""
        status = self.device.status
        return bool(status.oflo or status.inv)

    def reseed(self, seed: int) -> None:
        """Random bits follow this seed from now on, and places count from the start."""
        self.device.source, self.seed = Device(self.device.target, seed=seed).source, seed
        self.clock.forget()
        self.earlier, self.iteration = self.earlier + self.iteration, 0
        self.placed_steps = self.evaluations_of_step = 0


_choices = Choices()
_machine: Machine | None = None
#: The configuration that the machine was built for.
_built_for: System | None = None


def current() -> Machine:
    """The machine of the program, as its IPUConfig says; without one all control bits are off."""
    global _machine, _built_for
    configured = system.current() if system.is_configured() else None
    if _machine is None or configured is not _built_for:
        _machine, _built_for = _build(configured, _machine), configured
    return _machine


def choose(choices: Choices) -> Machine:
    """A new machine with these choices."""
    global _choices, _machine
    _choices, _machine = choices, None
    return current()


@contextmanager
def aside() -> Iterator[None]:
    """What runs inside has a new machine, configured as the program's, which goes on afterwards.

    Random places of both count from 0; the program's report has both.
    """
    global _machine, _built_for
    outer, configured = current(), _built_for
    _machine = _build(configured, outer)
    try:
        yield
    finally:
        outer.count_on(current())
        system.restore(configured)
        _machine, _built_for = outer, configured


def _build(configured: System | None, before: Machine | None) -> Machine:
    if configured is None:
        return Machine(_choices, before=before)
    machine = Machine(
        _choices, configured.control, before, partials=configured.partials,
        conv_partials=configured.conv_partials,
    )
    machine.processes = max(configured.options[PROCESS_COUNT], 1)
    machine.stable_norms = configured.stable_statistics
    only = StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY
    machine.identical_only = configured.rounding is only and _choices.sr is None
    machine.replicas = machine.n_ipus = max(configured.n_ipus, default=1)
    return machine
