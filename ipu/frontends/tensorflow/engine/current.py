"""The run of a TensorFlow program, and its machine now.

A program has one run. Outside of `with machine(...)` it is that of the command line, or one without
choices; inside it is that of the block. Its machine follows the program's IPUConfig.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

import fpsim
from fpsim.records.formats import BINARY32, Format
from ipu.feed.pace import pace_of
from ipu.frontends.tensorflow.engine.machine import Choices, Machine
from ipu.frontends.tensorflow.engine.statistics import METRICS
from ipu.frontends.tensorflow.reports.layers import layer_of_variable
from ipu.frontends.tensorflow.settings import system
from ipu.frontends.tensorflow.settings.choices import StochasticRoundingBehaviour
from ipu.frontends.tensorflow.settings.system import PROCESS_COUNT, System
from ipu.machine.control import FpSts
from ipu.machine.target import Target
from ipu.plan.switching import switch_cost
from ipu.run.changes import NONE, Changes
from ipu.run.motions import astray
from ipu.run.patterns import patterns_of, refuse_pattern, unmatched
from ipu.run.places import Place
from ipu.run.policies import PolicyArgument
from ipu.run.restoring import NOTHING_RESTORED, PrecisionSite, Restoring, sites_of
from ipu.run.run import OperationEvent, Run, Step
from ipu.run.shadow import Shadow
from ipu.run.ways import Way

__all__ = [
    "UNREACHED", "TensorFlowRun", "aside", "choose", "current", "current_run", "machine",
]

#: What a program lacks of which nothing reaches the machine.
UNREACHED = (
    "TensorFlow computes what is not sent to it: make and train a model of Keras inside of "
    "`with ipu.ipu_strategy.IPUStrategy().scope():`, call other functions by `strategy.run`, and "
    "build programs of TensorFlow 1 by `ipu.ipu_compiler.compile`; "
    "`from tensorflow.python import ipu` gives the names"
)
#: What the name of a layer is.
_NAMING = (
    "A node's layer is the scope of the variables that it uses, else its own scope, and a pattern "
    "may name its whole scope; optimizer and metrics/NAME are layers too"
)


class TensorFlowRun(Run):
    """What `machine` gives: a context manager, and after it a report.

    >>> import fpsim.tf
    >>> with fpsim.tf.machine("mixed", sr=True) as run:
    ...     pass  # the program
    >>> isinstance(run, TensorFlowRun), run.report()["policy"]
    (True, 'p=f32,c=f16,part=f32')
    """

    options: Choices

    def __init__(self, options: Choices) -> None:
        super().__init__(options)
        self.check_way(options.way)
        self.recorder.scale = options.changes.loss_scale
        self._configured: System | None = system.current() if system.is_configured() else None
        self._machine = self._built(None)
        #: Shadows in binary64, where they are asked for.
        self.shadows: Any = None
        #: Layers of the sites that were asked for.
        self._layers: frozenset[str] = frozenset()
        #: The run that goes on after this one, and its configuration.
        self._outer: tuple[TensorFlowRun, System | None] | None = None

    def perturb(self, fmt: Format | str = BINARY32, seed: int = 0) -> None:
        """Move every result from now on by a unit in the last place of a format, at random.

        Raises    ValueError for a name that is no format of numbers.
        """
        super().perturb(fmt, seed)
        self._machine.choices = self.options

    # Machines -------------------------------------------------------------------------------

    @property
    def machine(self) -> Machine:
        """The machine, as the IPUConfig says; without one all control bits are off."""
        if _run is not self:  # another run's configuration is none of this one's
            return self._machine
        configured = system.current() if system.is_configured() else None
        if configured is not self._configured:
            self._configured = configured
            self._machine = self._built(self._machine)
        return self._machine

    def _built(self, before: Machine | None) -> Machine:
        configured = self._configured
        if configured is None:
            return Machine(self, self.options, before=before)
        machine = Machine(
            self, self.options, configured.control, before, partials=configured.partials,
            conv_partials=configured.conv_partials,
        )
        machine.device.planner = configured.planner
        machine.device.conv_planner = configured.conv_planner
        machine.processes = max(configured.options[PROCESS_COUNT], 1)
        changes = self.options.changes
        machine.stable_norms = configured.stable_statistics or changes.stable_statistics
        only = StochasticRoundingBehaviour.REPLICA_IDENTICAL_ONLY
        machine.identical_only = configured.rounding is only and self.options.sr is None
        machine.replicas = machine.n_ipus = max(configured.n_ipus, default=1)
        return machine

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What runs inside has a new machine, configured as the program's, which goes on later.

        Random places of both count from 0; the report has both.
        """
        outer, configured = self.machine, self._configured
        self._machine = self._built(outer)
        try:
            yield
        finally:
            outer.count_on(self.machine)
            system.restore(configured)
            self._machine, self._configured = outer, configured
            self.use(outer.device)

    # Context manager ------------------------------------------------------------------------

    def __enter__(self) -> TensorFlowRun:
        global _run
        if _run._outer is not None:
            raise RuntimeError("a run is open already; leave it before another one begins")
        self._outer = _run, system.current() if system.is_configured() else None
        _run = self
        return self

    def __exit__(self, *error: object) -> None:
        global _run
        assert self._outer is not None
        self._machine = self.machine
        (_run, configured), self._outer = self._outer, None
        system.restore(configured)
        if error[0] is None:
            self.check_patterns()

    def check_patterns(self) -> None:
        """Refuse a pattern of the policy that no layer of the program matches.

        Raises    PatternError, where the program computed anything.
        """
        of_variables = set(map(layer_of_variable, self._machine.variables))
        missing = unmatched(patterns_of(self.policy), self.layer_names | of_variables)
        if missing and self.layer_names:
            layers = of_variables or self.layer_names
            raise refuse_pattern(missing[0], layers, self.policy.default, _NAMING)

    # Events ---------------------------------------------------------------------------------

    @property
    def place(self) -> Place:
        """Where the node that runs now stands; its layer there is its name."""
        return self._machine.clock.place

    def watch(self, see: Callable[[OperationEvent], object]) -> None:
        """Call `see` with the result of every node that is computed from now on."""
        super().watch(see)
        self._machine.plans.clear()  # they were made for a run that nobody watched

    def shadow(self, steps: int = 1) -> Shadow:
        """Carry the values in binary64 beside those of the next steps; it moves no bit.

        The report then has `shadow`: errors born and inherited by operation (`ipu.run.shadow`).

        Raises    TypeError for steps that are no whole number, ValueError for fewer than one;
                  RuntimeError after a launch.
        """
        if self.machine.launches:
            raise RuntimeError("shadow(steps) is asked for before the first launch")
        account = super().shadow(steps)
        from ipu.frontends.tensorflow.reports.shadowing import GraphShadows

        self.shadows = GraphShadows(account, self.machine.step + steps)
        return account

    # Report ---------------------------------------------------------------------------------

    def _plan_lines(self) -> Iterator[str]:
        yield from super()._plan_lines()
        target = self.machine.device.target
        if self.machine.switches and self.costs:
            plan, figures = self.costs[-1]
            yield (
                f"{self.machine.compiled} programs compiled, {self.machine.switches} switches "
                f"between them: {switch_cost(plan, figures, target)}"
            )
        for plan, figures in self.costs:
            if self.feeding.elements and any(stage.infeed_bytes for stage in figures):
                make = self.feeding.each * plan.count * self.machine.replicas
                yield pace_of(make, plan, figures, target).line
        outgoing, moved = self.machine.outgoing, self.machine.host_call
        if outgoing is not None and outgoing.cycles and moved is not None:
            yield from outgoing.lines(target.clock.value, moved["bytes_back"])

    @property
    def status(self) -> FpSts:
        """$FP_STS: the bits of all operations so far."""
        return self.machine.status

    def about(self) -> dict[str, Any]:
        """What a report has beyond that of every run.

        launches      calls of the device.
        iterations    of its loops; those that train nothing too.
        replicas      that ran in step, in this process.
        host_call     what an estimator's host call moves in a step, by data types; without one,
                      None.
        inputs        that are not normalised, of the first element of a data set.
        programs      compiled for a graph and the shapes of its inputs, and changes back to one.
        overlap       of its latest step: the account of sums over workers beside the program, and
                      when this host did what; None without one.
        """
        if self.shadows is not None:
            self.shadows.finish()
        machine = self.machine
        outgoing, moved = machine.outgoing, machine.host_call
        return {
            "steps": machine.step,
            "seed": machine.seed,
            "launches": machine.launches,
            "iterations": machine.iterations,
            "replicas": machine.replicas,
            "unreached": "" if machine.launches else UNREACHED,
            "host_call": moved,
            "inputs": self.feeding.inputs or [],
            "programs": {"compiled": machine.compiled, "switches": machine.switches},
            "overlap": None if outgoing is None or moved is None or not outgoing.cycles else
            outgoing.summary(machine.device.target.clock.value, moved["bytes_back"]),
            "versions": {
                "fpsim": fpsim.__version__, "tensorflow": tf.__version__, "numpy": np.__version__,
            },
            "assumed": f"the graph as TensorFlow {tf.__version__} builds it is what the vendor's "
            "compiler executes, without XLA's rewriting",
        }

    # Trials ---------------------------------------------------------------------------------

    def check_way(self, way: Way) -> Way:
        """The way.

        Raises    ValueError for one that changes what a graph cannot.
        """
        way.check_for_graphs()
        return way

    def check_closed(self) -> None:
        """Refuse trials inside of a run.

        Raises    RuntimeError.
        """
        if _run._outer is not None:
            raise RuntimeError("advise(step) opens runs of its own; leave this one first")

    def again(
        self, way: Way, seed: int, restoring: Restoring = NOTHING_RESTORED
    ) -> TensorFlowRun:
        """A run like this one, in another way and with another seed, that counts.

        restoring    sites that compute in binary32.
        """
        return TensorFlowRun(replace(
            self.options.in_way(way, seed), restoring=restoring, layers=self._layers))

    def sites(self, report: Mapping[str, Any]) -> list[PrecisionSite]:
        """Sites of the layers; metrics are binary32 by themselves, and layers with weights told.

        So are those of the program's variables that did not go where their shadows went.
        """
        layers = {name: row for name, row in report["layers"].items()
                  if not name.startswith(METRICS)}
        weights = dict.fromkeys([
            *(row["layer"] for row in report["exponents"]["weights"]),
            *(row["layer"] for row in astray(report)),
        ])
        sites = sites_of({**report, "layers": layers, "parameters": weights}, self.policy)
        self._layers = frozenset(site.layer for site in sites)
        return sites

    @contextmanager
    def afresh(self) -> Iterator[None]:
        """Inside, names of layers begin anew, and so do places; graphs are empty."""
        configured = system.current() if system.is_configured() else None
        tf.keras.backend.clear_session()
        tf.keras.utils.set_random_seed(0)  # that of Keras' own generator too
        try:
            yield
        finally:
            system.restore(configured)

    def tried(self, step: Step, seed: int) -> Sequence[float] | float | None:
        """What the program returns in this run; generators of Python and numpy are as before."""
        # The generators that programs use, whatever is new in numpy.
        before = random.getstate(), np.random.get_state()  # noqa: NPY002
        tf.keras.backend.clear_session()  # names of layers begin anew, and so do places
        tf.keras.utils.set_random_seed(seed)
        try:
            with self:
                return step(seed)
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])  # noqa: NPY002


_run = TensorFlowRun(Choices())


def current() -> Machine:
    """The machine of the program, as its IPUConfig says; without one all control bits are off."""
    return _run.machine


def current_run() -> TensorFlowRun:
    """The run of the program."""
    return _run


def choose(choices: Choices) -> Machine:
    """The machine of a new run with these choices, which is the program's from now on."""
    global _run
    _run = TensorFlowRun(choices)
    return _run.machine


def aside() -> AbstractContextManager[None]:
    """What runs inside has a new machine of the program's run; see `TensorFlowRun.aside`."""
    return _run.aside()


def machine(
    policy: PolicyArgument = "f32",
    *,
    sr: bool | None = None,
    seed: int = 0,
    count: bool = False,
    target: Target | str | None = None,
    ties: str = "all",
    nanoo: bool = False,
    traps: bool = False,
    found_inf: str = "values",
    preset: str = "window",
    f32_denormals: str = "flush",
    max_nan: str = "number",
    sums: str = "spread",
    changes: Changes = NONE,
    check_memory: bool = True,
    unconfigured: bool = False,
) -> TensorFlowRun:
    """TensorFlow code inside runs on a simulated machine, where it is sent to the IPU.

    policy    formats: a text as "p=f16,c=f16,part=f16", "f16", "fp32", a `Policy`, or a mapping
              from patterns of layers to these. float32 tensors hold values of c (variables: p);
              tf.half and tf.bfloat16 tensors keep their own format.
    sr        stochastic rounding; None: as the program's IPUConfig says. Its bits depend on the
              seed and on places (docs/semantics.md §2).
    count     count flags, zeros and subnormals by layer and direction.
    target    as in `ipu.machine.Device`, as are preset, f32_denormals, max_nan and sums.
    ties      of maximum pooling: "all", as the machine's own rule, or "first", as TensorFlow.
    nanoo     overflow gives NaN, also where the IPUConfig does not ask for it.
    traps     invalid operations, divisions by zero and overflow stop the program where they occur.
    found_inf what loss scalers look at: the "values" of gradients, or the "status" register.
    changes   of the program from outside, as `Changes(loss_scale=1024.0, eps=1e-4)`.
    check_memory    a program that does not fit the memory of an IPU is refused.
    unconfigured    a program that never calls configure_ipu_system() has one IPU with all control
                    bits off; else its launches are refused.

    Raises    ValueError for a policy that the target has no formats for; TypeError for switches
              that are neither True nor False.

    >>> import fpsim.tf
    >>> import tensorflow as tf
    >>> from tensorflow.python import ipu
    >>> program = tf.function(lambda: tf.constant([2048.0]) + 1)
    >>> with fpsim.tf.machine(policy="fp16", unconfigured=True):
    ...     strategy = ipu.ipu_strategy.IPUStrategy()
    ...     with strategy.scope():
    ...         print(strategy.run(program).numpy())
    [2048.]
    """
    return TensorFlowRun(Choices(
        policy=policy, sr=sr, seed=seed, count=count, target=target, ties=ties, nanoo=nanoo,
        traps=traps, found_inf=found_inf, preset=preset, f32_denormals=f32_denormals,
        max_nan=max_nan, sums=sums, changes=changes, check_memory=check_memory,
        unconfigured=unconfigured,
    ))
