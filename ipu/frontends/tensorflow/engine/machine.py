"""The machine of a program as it is configured: one device, and how far its program has come.

Its settings are those of the program's IPUConfig, under the `Choices` of whoever starts the run.
A new configuration makes a new machine, whose random places count from 0 and which counts into the
same run (`engine.current`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary

from fpsim.records.formats import BINARY32, Format
from ipu.frontends.tensorflow.engine.host_values import HostValues
from ipu.frontends.tensorflow.engine.replica_set import ALONE, ReplicaSet
from ipu.frontends.tensorflow.engine.streaming import Outgoing
from ipu.frontends.tensorflow.reports.layers import layer_of_variable
from ipu.learn.policy import LayerPolicies, Policy
from ipu.machine.control import POWER_ON, FpCtl, FpSts
from ipu.machine.device import Device
from ipu.plan.plan import replica_count
from ipu.run.options import RunOptions
from ipu.run.places import Place, PlaceClock
from ipu.run.policies import find_policy
from ipu.run.restoring import PARAMETERS, Alter, PrecisionSite
from ipu.run.run import Run

__all__ = ["EVALUATION", "Choices", "Machine", "replicas_on"]

#: The direction of launches that train nothing.
EVALUATION = "evaluation"


@dataclass(frozen=True, kw_only=True)
class Choices(RunOptions):
    """What a user chooses outside of the program: its IPUConfig chooses the rest.

    sr         stochastic rounding; None: as the IPUConfig says.
    ties       of maximum pooling: "all", the machine's own rule, or "first", as TensorFlow.
    reference  TensorFlow executes the traced programs itself.
    unconfigured    a program that configures no IPU has one; else its launches are refused.
    layers     those that a diagnosis gives back one by one; other scopes are parts of them.
    """

    sr: bool | None = None
    ties: str = "all"
    reference: bool = False
    unconfigured: bool = False
    layers: frozenset[str] = frozenset()

    @property
    def lines(self) -> list[str]:
        """What reaches bits, as lines "name: value": equal on all processes of a program."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"policy": find_policy(self.policy), "target": self.machine.name}
        return [f"{name}: {value}" for name, value in values.items()
                if name not in ("count", "check_memory", "unconfigured", "layers")]

    def wanted(self, control: FpCtl) -> FpCtl:
        """A program's control register with what the user chooses."""
        mine = self.control
        return replace(
            control, esr=control.esr if self.sr is None else self.sr,
            nanoo=control.nanoo or mine.nanoo, inv=control.inv or mine.inv,
            div0=control.div0 or mine.div0, oflo=control.oflo or mine.oflo,
        )


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
        self, run: Run, choices: Choices, control: FpCtl = POWER_ON,
        before: Machine | None = None, **partials: Any,
    ) -> None:
        self.run, self.choices = run, choices
        self.policy, self.is_plain, self.account = run.policy, run.is_plain, run.account
        self.device = Device(
            choices.machine, choices.wanted(control), **choices.device_options, **partials
        )
        self.clock = PlaceClock()
        self.device.clock = self.clock
        self._start_counting()
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
        #: Whether a strategy of the program keeps variables off the chip.
        self.variables_on_host: bool = before is not None and before.variables_on_host
        #: Iterations that make a step of the optimiser, in the launch that runs.
        self.accumulation = 1
        #: $FP_STS of the steps before this one.
        self.status_before = 0
        #: Values of variables that replicas keep to themselves (engine.replicas).
        self.private: dict[int, Any] = {}
        #: Variables of the host that it has the values of.
        self.host_values = HostValues()
        #: What an estimator's host call moves in a step: tensors, bytes out and back.
        self.host_call: dict[str, int] | None = None
        #: Results of the latest launch that sent some before its end.
        self.outgoing: Outgoing | None = None
        #: Plans by graph.
        self.plans: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        #: Programs that were compiled, changes back to one of them, and the plan that ran last.
        self.compiled = self.switches = 0
        self.on_chip: ReferenceType[Any] | None = None
        run.use(self.device)
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

    def policy_of(self, layer: str, scope: str, direction: str) -> Policy:
        """The policy of a layer and direction; patterns may also name the scope of its nodes."""
        self.run.layer_names |= {layer, scope}
        policy = self.policy.of(layer)
        if policy is self.policy.default:
            policy = self.policy.of(scope)
        if direction == "optimizer" and self.choices.changes.wide_states:
            policy = replace(policy, param=BINARY32)
        restoring = self.choices.restoring
        if restoring.is_empty:
            return policy
        return restoring.policy(policy, self._restored_part(layer), direction)

    def altering(self, layer: str, direction: str) -> Alter | None:
        """What a diagnosis does to the results of a layer and direction."""
        return self.choices.restoring.altering(self._restored_part(layer), direction)

    def _restored_part(self, layer: str) -> str:
        """The layer of a diagnosis that a scope without counts of its own is a part of."""
        owners = (name for name in self.choices.layers if f"{layer}/".startswith(f"{name}/"))
        return max(owners, key=len, default=layer)

    @property
    def has_wide_data(self) -> bool:
        """Whether data enter in binary32, and each layer casts what it reads."""
        return self.choices.changes.wide_data or not self.choices.restoring.is_empty

    @property
    def names_layers(self) -> bool:
        """Whether the policy has patterns of layers."""
        return isinstance(self.policy, LayerPolicies)

    def widens_halves(self, layer: str, scope: str) -> bool:
        """Whether a layer computes what the program made tf.half in binary32.

        So where the policy names the layer; one for all layers leaves halves what they are.
        """
        policy = self.policy
        if not isinstance(policy, LayerPolicies):
            return False
        return any(
            policy.names(name) and policy.of(name).compute == BINARY32 for name in (layer, scope))

    def format_of_variable(self, layer: str, *, is_state: bool) -> Format:
        """The format of a variable's layer.

        is_state    an optimiser keeps it beside a parameter, or only reads it.
        """
        self.run.layer_names.add(layer)
        restoring, changes = self.choices.restoring, self.choices.changes
        is_restored = PrecisionSite(layer, PARAMETERS) in restoring.sites
        is_wide = changes.wide_states or restoring.widens_updates
        if is_restored or (is_state and is_wide):
            return BINARY32
        return self.policy.of(layer).param

    def order(self, variables: Iterable[tuple[str, int]]) -> None:
        """Names and dimensions of a program's trained variables, by which last2 has a meaning."""
        if not self.run.needs_order:
            return
        layers = [
            layer_of_variable(name) for name, n in variables
            if n > 1 and not name.endswith("/embeddings")
        ]
        if layers:
            self.run.order(layers)
            self.policy = self.run.policy

    @property
    def shadows(self) -> Any:
        """The shadows of the run (`reports.shadowing`), or None."""
        return getattr(self.run, "shadows", None)

    @property
    def loss_scale(self) -> float:
        """That the user gives the program from outside."""
        return self.choices.changes.loss_scale

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
        self.outgoing = self.outgoing or before.outgoing
        self.compiled += before.compiled
        self.switches += before.switches

    @property
    def iterations(self) -> int:
        """Iterations of loops on all machines of the program, evaluations too."""
        return self.earlier + self.iteration + self.evaluations

    def advance(self) -> None:
        """An iteration has ended."""
        if self.is_evaluating:
            self.run.step_done(self.step)
            self.evaluations += 1
            self.evaluations_of_step += 1
            self.clock.forget_direction(EVALUATION)
            return
        self.iteration += 1
        if self.iteration % self.accumulation == 0:
            self.run.step_done(self.step)
            self.step += 1
            self.placed_steps += 1
            self.evaluations_of_step = 0
            self.clock.forget()
            self.status_before |= self.device.status_word
            self.device.status_word = 0
            self.run.stop_if_enough(self.step)

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
