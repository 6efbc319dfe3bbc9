"""A run: a device, the policy of its layers, and what a program did there.

Every front end has a run, and a native training takes one: `fpsim.torch.machine` and
`fpsim.tf.machine` give theirs, `ipu.run.native.machine` that of a `Trainer`. They tell it of
results, updates, losses, constants and ends of steps; it makes the report, the page and advice.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format, find_number_format
from fpsim.state.tallies import ValueTally, tally_of
from ipu.feed.pace import Feeding
from ipu.learn.policy import LayerPolicies
from ipu.machine.control import FpSts, dump
from ipu.machine.device import Device
from ipu.plan.explain import explain
from ipu.plan.metering import Costs
from ipu.run.account import Account, split_name
from ipu.run.advising import Advised, advise
from ipu.run.budget import Budget
from ipu.run.diagnosing import diagnose
from ipu.run.diagnosis import Diagnosis
from ipu.run.digests import DigestFile
from ipu.run.endpoints import PROGRESS, Outcome, find_endpoint
from ipu.run.horizons import followed_further
from ipu.run.judging import Declaration
from ipu.run.looks import LOOKS
from ipu.run.noise import ResultNoise
from ipu.run.options import RunOptions
from ipu.run.pages.page import write_run
from ipu.run.places import Place
from ipu.run.policies import find_policy, formats_of, recipes_of
from ipu.run.recorder import Recorder
from ipu.run.replaying import EnoughError, RunBound, replaying
from ipu.run.report import describe
from ipu.run.reruns import Replay
from ipu.run.restoring import NOTHING_RESTORED, PrecisionSite, Restoring, sites_of
from ipu.run.shadow import Shadow, check_shadow_steps
from ipu.run.showing import Report
from ipu.run.ways import Way

__all__ = ["OperationEvent", "Run", "Step"]

#: Trains from a seed, or with the run of a trial, and returns losses, a score or None.
Step = Callable[[Any], Sequence[float] | float | None]


class OperationEvent(NamedTuple):
    """The result of an operation.

    operation    the front end's name of it.
    place        where its random bits belong: step, micro-batch, replica.
    array        the values, which nobody may change.
    operands     what it was computed of, as far as the front end tells.

    >>> from ipu.learn import SGD, Trainer, dense
    >>> from ipu.run import machine
    >>> run, events = machine("fp16"), []
    >>> run.watch(events.append)
    >>> loss = Trainer(lambda x: dense(x, 2, "only"), SGD(0.5), run=run).step([[1.0, 2.0]], [0])
    >>> isinstance(events[0], OperationEvent), len(events)
    (True, 9)
    >>> for event in events[:3]:
    ...     print(event.operation, event.layer, event.direction, event.array.format)
    matmul only forward binary16
    bias only forward binary16
    softmax_cross_entropy loss forward binary32
    """

    operation: str
    layer: str
    direction: str
    place: Place
    array: Array
    operands: tuple[Array, ...] = ()


class Run(ABC):
    """What every run has.

    options     what the user asked for.
    device      whose arithmetic it is now.
    policy      formats by layer; `way`: with rounding and changes.
    account     operations by kind, constants, parameters.
    recorder    exponents, updates, losses; those of values only where the run counts.

    >>> from ipu.learn import SGD, Trainer, dense
    >>> from ipu.run import machine
    >>> run = machine("fp16", count=True)
    >>> trainer = Trainer(lambda x: dense(x, 2, "only"), SGD(2.0**-12), run=run)
    >>> loss = trainer.step([[1.0, 2.0**-18]], [0])
    >>> isinstance(run, Run), run.report()["layers"]["only"]["backward"]["subnormals"]  # gradients
    (True, 2)
    >>> run.report()["swallowed"]["only"]["share"]  # of updates
    0.5
    """

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        self.policy = find_policy(options.policy)
        self.formats = formats_of(self.policy)
        #: Every policy is binary32: tensors of 32 bits are what they are.
        self.is_plain = self.formats == {BINARY32} and not recipes_of(self.policy)
        #: Whether flags, exponents and updates are counted.
        self.is_counting = options.count
        self.account = Account()
        self.recorder = Recorder()
        self.recorder.births.line = self.user_line
        self.recorder.births.where = self._where
        #: Names of layers that have run, as patterns of the policy may match them.
        self.layer_names: set[str] = set()
        self._watchers: list[Callable[[OperationEvent], object]] = []
        #: What its programs cost, as far as they were measured.
        self._costs: dict[Any, Costs] = {}
        #: What the host took to make the elements of its data sets.
        self.feeding = Feeding()
        self._advised: Advised | None = None
        self._shadow: Shadow | None = None
        #: Steps after which the program is stopped; None: it runs to its end.
        self._enough: int | None = None
        self._bound: RunBound | None = None

    def use(self, device: Device) -> None:
        """Compute on this device from now on; one after another counts into the same report.

        Raises    ValueError for a device that lacks a format of the policy, or its blocks' units.
        """
        for recipe in recipes_of(self.policy):
            device.check_blocks(recipe)
        if self.recorder.counts is None:
            self.recorder.counts = device.counts
            if device.counts is not None:
                device.counts.raised = Counter()
        device.counts = self.recorder.counts  # before there are contexts, which count there
        for fmt in self.formats:
            device.context(fmt)
        if self.is_counting:
            device.blocks.observe = self.recorder.operands.add
            device.entering = self.recorder.entered
        self.device = device
        self.way = Way(self.policy, device.control.esr, self.options.changes)

    def order(self, layers: Sequence[str]) -> None:
        """first2 and last2 of the policy mean these layers of a model, those with weights.

        Parts of a model that is there already change nothing.

        Raises    ValueError where they ask for more than there are.
        """
        policy = self.policy
        if not isinstance(policy, LayerPolicies) or not policy.needs_order:
            return
        if not set(layers) <= {layer for model in policy.order for layer in model}:
            self.policy = policy.in_order(*policy.order, layers)
            self.way = replace(self.way, policy=self.policy)

    @property
    def needs_order(self) -> bool:
        """Whether a pattern of the policy asks for the order of layers."""
        return isinstance(self.policy, LayerPolicies) and self.policy.needs_order

    # Events ---------------------------------------------------------------------------------

    @property
    @abstractmethod
    def place(self) -> Place:
        """Where the operation that runs now stands."""

    @property
    def is_watched(self) -> bool:
        """Whether results are asked for, by the recorder or by others."""
        return self.is_counting or bool(self._watchers)

    @property
    def is_only_counting(self) -> bool:
        """Whether results are asked for by the recorder alone, to which their tallies will do."""
        return self.is_counting and not self._watchers

    def watch(self, see: Callable[[OperationEvent], object]) -> None:
        """Call `see` with the result of every operation that is computed from now on.

        It moves no bit of the run.
        """
        if not callable(see):
            raise TypeError(f"see={see!r} is no function; give one that takes an OperationEvent")
        self._watchers.append(see)

    def _where(self) -> tuple[str, str, int]:
        """Layer, direction and step of the operation that runs now."""
        return *split_name(self.device.tensor), self.place.step

    def digest(
        self, path: str | Path, keep: int | None = None, *, sketch: bool = False
    ) -> DigestFile:
        """Write a digest of every operation from now on, for `fpsim diff`; it moves no bit.

        keep    the number of an operation whose values and operands are stored beside the file.

        sketch  each line has a sketch of the values, for `fpsim diff --tolerance`.

        The result is closed, or a context left, when the run is over.

        Raises    OSError for a path that cannot be written.
        """
        noise = self.options.restoring.noise
        file = DigestFile(
            path, self.operation_line, keep, sketch=sketch,
            noise=noise.format.name if noise is not None else "",
        )
        self.watch(file.note)
        return file

    def perturb(self, fmt: Format | str = BINARY32, seed: int = 0) -> None:
        """Move every result from now on by a unit in the last place of a format, at random.

        Digests of such a run show how the program amplifies rounding: `fpsim diff --tolerance`.

        Raises    ValueError for a name that is no format of numbers.
        """
        noise = ResultNoise(find_number_format(fmt), seed)
        self.options = replace(
            self.options, restoring=replace(self.options.restoring, noise=noise))

    def user_line(self) -> str:
        """FILE:LINE of the user's program that runs now, where the front end knows it."""
        return ""

    def operation_line(self) -> str:
        """The same of the operation whose results are told now."""
        return self.recorder.births.line()

    def result(
        self, name: str, operation: str, array: Array, operands: Sequence[Array] = (),
        tally: ValueTally | None = None,
    ) -> None:
        """An operation has this result, of these operands.

        name    of its layer and direction, as the device counts them.
        tally   of the result; None: it is made. Where there is one nobody else watches.
        """
        if self.is_counting:
            tally = tally_of(array.carrier) if tally is None else tally
            self.recorder.result(name, array, tally)
            self.recorder.operation(self.place.step, name, operation, array, operands, tally)
        if self._watchers:
            event = OperationEvent(
                operation, *split_name(name), self.place, array, tuple(operands)
            )
            for see in self._watchers:
                see(event)

    def step_done(self, step: int) -> None:
        """A step is over, or the report is asked for in it."""
        if self.device.counts is not None:
            self.recorder.step_done(step, self.device.counts)

    #: Whether the policy is asked in each step, so that some of them can be given back.
    has_formats_by_step = False

    def stop_after(self, steps: int, bound: RunBound | None = None) -> None:
        """The program is stopped by `EnoughError` after so many steps of an optimiser.

        bound    of the program's operations or of time, which may stop it before.
        """
        self._enough, self._bound = steps, bound
        if bound is not None:
            self.account.watching = bound.check

    def stop_if_enough(self, steps: int) -> None:
        """So many steps of this run are over.

        Raises    EnoughError where no more were asked for.
        """
        if steps == self._enough:
            raise EnoughError(f"run {id(self)} has made the {steps} steps that were asked for")
        if self._bound is not None:
            self._bound.step_over(steps)

    # Shadows --------------------------------------------------------------------------------

    def shadow(self, steps: int = 1) -> Shadow:
        """Carry the values in binary64 beside those of the next steps; it moves no bit.

        The report then has `shadow`: errors born and inherited by operation (`ipu.run.shadow`).

        Raises    TypeError for steps that are no whole number, ValueError for fewer than one.
        """
        self._shadow = Shadow(check_shadow_steps(steps), self.user_line)
        return self._shadow

    # Plans ----------------------------------------------------------------------------------

    def note_costs(self, program: Any, costs: Costs) -> None:
        """A program was measured, or measured again with its update."""
        self._costs[program] = costs

    @property
    def costs(self) -> list[Costs]:
        """Of programs that train or have several stages, in the order in which they ran first."""
        return [c for c in self._costs.values() if c.plan.training or c.plan.n_stages > 1]

    def _plan_lines(self) -> Iterator[str]:
        for costs in self.costs:
            yield from explain(costs.plan, costs.figures, self.device.target).splitlines()

    # Report ---------------------------------------------------------------------------------

    @property
    def status(self) -> FpSts:
        """$FP_STS: the bits of all operations so far."""
        return self.device.status

    @abstractmethod
    def about(self) -> Mapping[str, Any]:
        """What the front end adds to a report: steps and versions at least."""

    def report(self, folder: str | Path | None = None) -> Report:
        """What the run did, as a mapping whose text is for a terminal.

        folder    where the page is written too: index.html, report.json, report.txt.

        by_order      layers that first2 or last2 of the policy mean, by pattern.
        operations    calls by kind: machine, exact, host, integer.
        native        floating-point operations that ran natively: none.
        host          operations computed in binary64 on the host, and their share of all elements.
        constants     numbers that did not fit into the format that they were used in.
        asks_status   a gradient scaler could tell of overflow by the status register alone.
        makes_halves  the program makes tensors float16 or bfloat16, which have the policy's
                      formats here (`halves_by_policy`).
        note          what the target is not, of targets that are no IPU.
        unreached     what to add to a program of which nothing reached the machine; "" for others.
        layers        counters by layer and direction; this and the next need `count=True`.
        first         where overflow, division by zero and invalid operations began.
        births        where numbers left their format, in order of time (`ipu.run.births`).
        carried       elements that later operations computed of such, by kind.
        symptom       the first loss that is not finite, and the births that it comes from.
        jumps         the largest update beside its parameter's largest number, by step.
        exponents     histograms of weights, activations, gradients, updates, by layer and format.
        swallowed     updates that left their parameter as it was, by layer.
        loss_scale    present, highest safe and best.
        scale_option    of the program, by which the loss scale is set; "" of none.
        losses        where backward passes began, by step: the mean of `losses_of_step` at most.
        plan          slots, time and memory of the programs that were measured, in lines.
        shadow        errors born and inherited by operation, of a run with shadows
                      (`ipu.run.shadow`); {} of others.
        operands      of products in blocks, by layer, product and operand (`ipu.run.operands`).
        uncovered     products that the policy's recipe does not cover, by layer.
        units         products by matrix unit, and their share of all multiply-adds.
        assumed       what the results rest on beyond the machine's own rules.
        versions      of fpsim, numpy and the front end's framework.
        """
        return self.told(folder)

    def _repr_html_(self) -> str:
        """How a notebook shows it: by what happened so far."""
        return self.report()._repr_html_()

    def told(self, folder: str | Path | None = None, **added: Any) -> Report:
        """The report, with what a front end on top of another one adds."""
        control = self.device.control
        about = {
            "policy": str(self.policy),
            "by_order": self.policy.meanings if isinstance(self.policy, LayerPolicies) else {},
            "note": self.device.target.note,
            "stochastic_rounding": control.esr,
            "changes": str(self.options.changes),
            "first_step": 0,
            "seed": self.options.seed,
            "ties": self.options.ties,
            "unreached": "",
            "plan": list(self._plan_lines()),
            "shadow": {},
            "status": dump(control, self.status),
            **self.about(),
            **added,
        }
        if self._shadow is not None:
            about["shadow"] = self._shadow.summary()
        recorder = self.recorder if self.is_counting else None
        report = Report(describe(self.account, self.device, recorder, about))
        if folder is not None:
            write_run(Path(folder), report, self._advised or self.advice(report))
        return report

    def advice(self, report: Mapping[str, Any]) -> Advised:
        """What a report of this run speaks for, with the evidence; nothing is tried."""
        return advise(report, self.way, check=self.check_way)

    def advise(
        self, step: Step | None = None, trials: Iterable[str | Way] | None = None,
        pairs: int = LOOKS[-1], endpoint: str = PROGRESS.name, margin: float | None = None,
    ) -> Advised:
        """What to change, with the evidence; with `step`, tried.

        step      `step(seed)` makes model, optimiser and data from that seed, trains some steps on
                  the machine that is open, and returns their losses, or None for those at which
                  its backward passes began; or one number, a score. It is called once for each way
                  and seed, with the framework's generators seeded alike, so that all ways start
                  from equal states.
        trials    ways to try, as "fp16+sr+eps=1e-4+scale=1024"; None: those of the advice.
        pairs     of runs that confirm a way, at most; 5 or more.
        endpoint  by which ways are compared: "progress", the share of binary32's own progress that
                  is lost; "log-loss"; "lowest" or "highest", the score that the step returns.
        margin    the difference that does not matter; None: 1 % of the progress, 0.5 % of the loss.

        Raises    RuntimeError inside of the run: the trials are runs too.
        """
        if step is not None:
            if not callable(step):
                raise TypeError(f"step={step!r} is no function; give one that trains once, or None")
            self.check_closed()

        def run(way: Way, seed: int) -> Outcome:
            assert step is not None
            return self.trial(way, seed, step)

        declared = Declaration(find_endpoint(endpoint, margin), pairs)
        self._advised = advise(
            self.report(), self.way, run if step else None, trials, declared, self.check_way
        )
        return self._advised

    def diagnose(
        self, step: Step, steps: int | None = None, seconds: float = 60.0
    ) -> Diagnosis:
        """What hurts a program and what mends it, each statement tested; see `ipu.run.diagnosis`.

        step      as of `advise`: makes model, optimiser and data from a seed, and trains.
        steps     of an optimiser, after which each run stops; None: 10, and 40 where these lose
                  digits without harm, or part by what may be chance.
        seconds   that it takes: a run that would take longer is cut.

        Raises    TypeError for a step that is no function; RuntimeError inside of the run.
        """
        if not callable(step):
            raise TypeError(f"step={step!r} is no function; give one that trains once")
        self.check_closed()

        def body(again: Run) -> None:
            again.tried(step, 0)

        if steps is not None:
            check_shadow_steps(steps)
        return self.diagnosis(body, steps, Budget(seconds))

    def diagnosis(
        self, body: Callable[[Any], object], steps: int | None, budget: Budget,
        stops: tuple[type[Exception], ...] = (), tell: Callable[[Diagnosis], object] = id,
    ) -> Diagnosis:
        """As `diagnose`, of a program that `body` runs in a run; see `ipu.run.replaying`.

        tell    is called with what is known so far.
        """

        def replay(steps: int, budget: Budget) -> Replay:
            return replaying(self, steps, body, stops, budget)

        def diagnosed(steps: int, budget: Budget) -> Diagnosis:
            return diagnose(
                replay(steps, budget), self.way, steps, budget, self.sites, self.check_way,
                has_windows=self.has_formats_by_step, tell=tell, longer=replay,
            )

        if steps is None:
            return followed_further(diagnosed, budget, tell)
        return diagnosed(steps, budget)

    def afresh(self) -> AbstractContextManager[object]:
        """Inside, a program begins that finds nothing of those before it in the framework."""
        return nullcontext()

    def sites(self, report: Mapping[str, Any]) -> list[PrecisionSite]:
        """What a run with this report can give back to binary32, place by place."""
        return sites_of(report, self.policy)

    # Trials ---------------------------------------------------------------------------------

    def check_way(self, way: Way) -> Way:
        """The way.

        Raises    ValueError for one in which the front end cannot run a program.
        """
        return way

    @abstractmethod
    def check_closed(self) -> None:
        """Refuse trials while a run is open.

        Raises    RuntimeError.
        """

    @abstractmethod
    def again(self, way: Way, seed: int, restoring: Restoring = NOTHING_RESTORED) -> Run:
        """A run like this one, in another way and with another seed, that counts.

        restoring    sites that compute in binary32.
        """

    @abstractmethod
    def tried(self, step: Step, seed: int) -> Sequence[float] | float | None:
        """What the program returns in this run, with the framework's generators at that seed."""

    def trial(self, way: Way, seed: int, step: Step) -> Outcome:
        """Losses and report of a step function in a way; why it stopped, if it did."""
        run = self.again(way, seed)
        returned: Sequence[float] | float | None = None
        error = ""
        with warnings.catch_warnings():
            # What a way warns of, the way of the run has said.
            warnings.simplefilter("ignore", RuntimeWarning)
            try:
                returned = run.tried(step, seed)
            except (ValueError, NotImplementedError, ArithmeticError) as caught:
                error = str(caught).partition("\n")[0]
        report = run.report()
        if returned is not None and np.ndim(returned) == 0:
            return Outcome(report["losses"], report, error, float(returned))  # type: ignore[arg-type]
        losses = [float(x) for x in returned] if returned else report["losses"]  # type: ignore[union-attr]
        return Outcome(losses, report, error)
