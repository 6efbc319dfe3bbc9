"""A session: PyTorch code inside it runs on a simulated machine, and a report tells what happened.

>>> import fpsim.torch
>>> net = torch.nn.Linear(2, 1)
>>> with fpsim.torch.machine(policy="p=f16,c=f16", sr=True) as run:
...     loss = net(torch.ones(3, 2)).square().mean()
...     loss.backward()
>>> run.report()["native"]
0
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from numpy.typing import NDArray

import fpsim
from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from fpsim.records.units import MatrixUnit
from fpsim.state.tallies import ValueTally
from ipu.frontends.torch import errors
from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.cache import caching
from ipu.frontends.torch.capture.captured import CapturedStep
from ipu.frontends.torch.capture.recording import StepRecording
from ipu.frontends.torch.capture.replay import StepReplay
from ipu.frontends.torch.changing import Changer, keep_counters, undoing
from ipu.frontends.torch.entering import Entering
from ipu.frontends.torch.gradients import Gradients
from ipu.frontends.torch.handwritten import HandwrittenUpdates
from ipu.frontends.torch.hypothetical import find_device
from ipu.frontends.torch.kernels import without_whole_kernels
from ipu.frontends.torch.layers import Layers, Where
from ipu.frontends.torch.listing import described
from ipu.frontends.torch.metering import LayerMeter
from ipu.frontends.torch.mode import MachineMode
from ipu.frontends.torch.observing import WeightObserver, following_losses
from ipu.frontends.torch.outside import Outside, watching
from ipu.frontends.torch.recompute import repeating
from ipu.frontends.torch.recurrent import cells_in_one_call
from ipu.frontends.torch.replicas.alone import ALONE, Alone
from ipu.frontends.torch.resuming import check_step, formats_of_state, mark_state, resuming
from ipu.frontends.torch.roots import Roots
from ipu.frontends.torch.shadowing import Shadowing
from ipu.frontends.torch.single import OneByOne, scalers_unscale
from ipu.frontends.torch.updates import StepRows
from ipu.frontends.torch.values import FORMATS, Memory, tensors_of
from ipu.learn.patterns import is_by_order
from ipu.learn.policy import Policy
from ipu.machine.control import FpSts
from ipu.machine.device import Device
from ipu.machine.target import Target
from ipu.ops.listing import Listing
from ipu.run.account import counted_name
from ipu.run.changes import NONE, Changes
from ipu.run.digests import DigestFile
from ipu.run.options import RunOptions
from ipu.run.patterns import patterns_of, refuse_pattern, unmatched
from ipu.run.places import Place, PlaceClock, ReplayStart
from ipu.run.policies import PolicyArgument
from ipu.run.restoring import NOTHING_RESTORED, Restoring
from ipu.run.run import OperationEvent, Run, Step
from ipu.run.shadow import Shadow
from ipu.run.ways import Way

__all__ = ["Session", "machine", "native"]

#: What a program lacks of which nothing reaches the machine.
_UNREACHED = (
    "A session sees operations of PyTorch on floating-point tensors of the CPU, in this process "
    "and inside of `with machine(...)`: compute with those"
)


class Session(Run):
    """What `machine` gives: a context manager, and after it a report.

    device    whose arithmetic it is.
    unit      for products, of a hypothetical machine.
    step      the number of the first step.

    >>> import fpsim.torch
    >>> with fpsim.torch.machine("fp16", count=True) as run:
    ...     total = torch.full((4,), 300.0) * 300
    >>> isinstance(run, Session), total.tolist(), run.status.oflo
    (True, [65504.0, 65504.0, 65504.0, 65504.0], True)
    """

    _open: Session | None = None
    has_formats_by_step = True
    #: torch's own kernels compute, and the machine nothing.
    is_native = False
    #: Updates are torch's operations, one by one, as they are in a native run.
    is_by_operation = False

    def __init__(
        self, device: Device, options: RunOptions, *, unit: MatrixUnit | str | None = None,
        step: int = 0,
    ) -> None:
        super().__init__(options)
        self.clock = PlaceClock()
        device.clock = self.clock  # before there are contexts, which draw by it
        self.use(device)
        #: The operation that runs now.
        self._operation = ""
        #: Its line of the program, where somebody has asked for it.
        self._line: str | None = None
        self._unit, self._first = unit, check_step(step)
        #: Formats that tensors may hold.
        self._formats = self.formats | {BINARY32, *FORMATS.values()}
        self.memory = Memory(
            device, is_plain=self.is_plain, replaced=dict(options.changes.constants)
        )
        self.changer = Changer(options.changes, self.memory, self.call)
        self.halves_by_policy = options.changes.halves_by_policy
        #: Patterns of the policy that have not been looked for among the layers.
        self._patterns = patterns_of(self.policy)
        #: Modules that the program calls, whose order of layers the policy has.
        self._roots_in_order: WeakSet[torch.nn.Module] = WeakSet()
        self.layers = Layers(
            self._enter, self.start_update, self._finish_step, self.start_backward,
            self.end_backward, self._end_block,
        )
        self.gradients = Gradients(self.changer.follow)
        #: What the session does not see.
        self.outside = Outside()
        self.observer = WeightObserver(self, self.memory, self.layers, self.gradients)
        if self.is_watched:
            self.memory.watch = self.note_result
        if self.is_counting:
            self.memory.births = self.recorder.births
        self.roots = Roots(
            options.changes.loss_scale, self.recorder, self.memory, self.layers, self.call,
            lambda: self.step, self._check_patterns,
        )
        self.step_rows = StepRows(self)
        self.mode = MachineMode(self)
        #: What notes the step that runs, and what replays it; see `captured`.
        self.capture: StepRecording | None = None
        self.replay: StepReplay | None = None
        #: What measures the program's first step; see `measure`.
        self.meter: LayerMeter | None = None
        self._form = OneByOne()
        #: Steps of optimisers tried before this session.
        self.first_step = self._first
        #: The copy of the model that runs now, where a front end has several.
        self.replica = 0
        #: This process's replica among those of others.
        self.replicas: Alone = ALONE
        #: Where the program's operations are listed until its processes have met; see `listed`.
        self.listing: Listing | None = None
        #: Shadows in binary64, where they are asked for.
        self.shadowing: Shadowing | None = None
        self._stack: ExitStack | None = None
        self._start_counts()

    def _start_counts(self) -> None:
        """Nothing has run."""
        #: Steps of optimisers tried so far, those before this session included.
        self.step = self.first_step
        #: Parameters may have changed since the last look at them.
        self._may_have_stepped = False
        #: Whether an optimiser of torch had parameters of the program when they first changed.
        self._has_optimiser: bool | None = None
        #: $FP_STS of what ran outside of the backward passes that the device's own register is
        #: about, and of those since the last step.
        self.status_before = self._status_of_passes = 0
        self._has_stepped = False
        self._optimisers: WeakSet[torch.optim.Optimizer] = WeakSet()
        #: What brings back parameters and slots of the step that runs, if it may stop.
        self._undo: Callable[[], None] | None = None
        self._calls: dict[tuple[Where, bool, int], tuple[Call, Place, str]] = {}
        #: Those of the block without gradients that is open.
        self._block_calls: dict[tuple[Where, bool, int], tuple[Call, Place, str]] = {}
        self._entering = Entering(self)
        self.handwritten = HandwrittenUpdates(self)

    def measure(self) -> LayerMeter:
        """Measure the program's first step, and end the program behind it by StepMeasured.

        Raises    RuntimeError for a session that is open.
        """
        if Session._open is self:
            raise RuntimeError("a session is open; call measure() before it begins")
        self.meter = LayerMeter(self.device, self.memory, self.layers)
        return self.meter

    # Context manager ------------------------------------------------------------------------

    def __enter__(self) -> Session:
        if Session._open is not None:
            raise RuntimeError("a session is open already; leave it before another one begins")
        with ExitStack() as stack:
            Session._open = self
            stack.callback(self._close)
            self.layers.attach()
            if self.shadowing is not None:
                stack.enter_context(self.shadowing.on_one_thread())
            stack.enter_context(without_whole_kernels())
            stack.enter_context(cells_in_one_call(self))
            stack.enter_context(caching(self.options.changes.cache, self.memory))
            stack.enter_context(watching(self.account.native))
            stack.enter_context(self.outside.noting())
            stack.enter_context(repeating(self._mark, self._again, self.layers.region))
            stack.enter_context(following_losses(self.roots))
            stack.enter_context(self.changer.following_grad(self.roots))
            stack.enter_context(self.gradients.following())
            stack.enter_context(self.layers.blocks.watching())
            stack.enter_context(scalers_unscale())
            stack.enter_context(self.step_rows.naming())
            stack.enter_context(resuming(self._note_state, self._resume))
            stack.callback(self._end_last_step)
            stack.enter_context(self.replicas.running(lambda: self.step))
            if self.meter is not None:
                stack.enter_context(self.meter.following())
            stack.enter_context(self.mode)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        assert self._stack is not None
        self._stack.__exit__(*error)
        if error[0] is None:
            self._check_patterns()

    def _close(self) -> None:
        Session._open = None
        self.layers.detach()
        self.changer.close()
        self._form.end()

    def _check_patterns(self) -> None:
        """Refuse a pattern that no layer matches, when those of a step have run.

        Raises    PatternError, unless a module that has not run yet would match.
        """
        names = self.layers.names if self._patterns else set()
        layers = {"optimizer", *names, *self.layer_names}
        missing = unmatched(self._patterns, layers)
        if missing and not (names or self.layer_names):
            return
        missing = missing and unmatched(missing, self.layers.waiting())
        if missing:
            raise refuse_pattern(missing[0], names or layers, self.policy.default)
        self._patterns = []

    # Places ---------------------------------------------------------------------------------

    def call(self, operation: str) -> Call:
        """The operation of that name, without overload: its layer, policy and place."""
        layers = self.layers
        if self.replay is not None:
            _, where, is_replaying, k = self.replay.next_call(operation)
            call = self._at(operation, where, is_replaying)
            # Draws of an update depend on numbers of its groups, and none is left out.
            if where.direction != "optimizer":
                self.clock.go_on_at(k)
            return call
        if self._entering.has_unmade:
            self._entering.made()
        where = layers.where(operation)
        if self._may_have_stepped and where.direction == "forward":
            self._end_last_step()
            where = layers.where(operation)
        if self.meter is not None:
            self.meter.at(where)
        call = self._at(operation, where, layers.is_replaying)
        if self.capture is not None:
            self.capture.called(operation, where, layers.is_replaying, self.clock.k)
        return call

    def _at(self, operation: str, where: Where, is_replaying: bool) -> Call:
        """The operation of that name at a place, where the next numbers are drawn."""
        key = where, is_replaying, self.replica
        calls = self._block_calls if where.direction == "evaluation" else self._calls
        entry = calls.get(key)
        if entry is None:
            entry = calls[key] = self._new_call(*key)
        call, place, name = entry
        self._operation, self._line = operation, None
        self.memory.operands.clear()
        self.clock.place = place
        self.memory.in_pass = call.direction == "backward"
        self.device.tensor = name
        self.memory.alter = call.alter
        if where.direction == "optimizer":
            call.is_wide = self._is_wide(operation)
        return call

    def _is_wide(self, operation: str) -> bool:
        """Whether an operation of an optimiser, which the program writes, is in binary32."""
        if not self.handwritten.is_here():
            return False
        if self._patterns:
            self.layer_names.add(operation)
        return self.handwritten.is_wide(operation)

    def policy_of(self, layer: str, direction: str) -> Policy:
        """The policy of operations of a layer and direction; see `ipu.run.restoring`."""
        restoring, policy = self.options.restoring, self.policy.of(layer)
        if restoring.is_empty:
            return policy
        return restoring.policy(policy, layer, direction, self.step - self.first_step)

    def has_recipe(self, layer: str, direction: str) -> bool:
        """Whether products of a layer are computed in blocks."""
        return self.policy_of(layer, direction).recipe is not None

    def _new_call(self, where: Where, is_replaying: bool, replica: int) -> tuple[Call, Place, str]:
        """What operations of a layer, direction and micro-batch share in a step."""
        layer, direction, micro_batch = where
        if self._patterns:
            self.layer_names.add(layer)
        policy = self.policy_of(layer, direction)
        call = Call(self, policy, layer, direction, self.memory)
        call.alter = self.options.restoring.altering(layer, direction, self.step - self.first_step)
        shown = "recompute" if is_replaying else direction
        place = Place(self.step, micro_batch, replica, layer, direction)
        return call, place, counted_name(layer, shown)

    def look(
        self, name: str, tensors: list[torch.Tensor], args: Any, kwargs: Any,
        written: Sequence[int | str],
    ) -> bool:
        """Whether the operation that begins now is part of an update without an optimiser.

        tensors    those among its arguments.
        written    places of the arguments that it writes.
        """
        layers, handwritten = self.layers, self.handwritten
        layers.is_updating = self.recorder.births.is_update = False
        if torch._C._current_graph_task_id() != -1:
            return False
        if layers.in_update:
            if written and handwritten.is_here() and handwritten.is_wide(name):
                handwritten.widen(_targets(args, kwargs, written))
            return False
        in_block = layers.blocks.opener is not None and layers.blocks.is_open
        if not in_block and (layers.stack or not torch.is_grad_enabled()):
            return False
        if not in_block:
            for x in tensors:
                if x.requires_grad:
                    return False
        targets = _targets(args, kwargs, written) if written else []
        in_module = bool(layers.stack)
        layers.is_updating = self.gradients.is_update(tensors, targets, in_module=in_module) or (
            handwritten.has_wide_states and handwritten.reads_state(tensors, in_module=in_module))
        if targets and layers.is_updating and handwritten.is_wide(name):
            handwritten.widen(targets)
        return layers.is_updating

    def listed(self, func: Any, args: Any, kwargs: Any) -> None:
        """List an operation of a module, or of a backward pass, for the comparison of programs.

        Left out are what a process does for itself: data, evaluations, and numbers that a program
        computes and puts beside tensors.
        """
        assert self.listing is not None
        where = self.layers.where(str(func))
        in_program = where.direction == "forward" and self.layers.stack
        if self.listing.is_open and (in_program or where.direction == "backward"):
            self.listing.add(f"{where.layer} {where.direction}", *described(func, args, kwargs))

    def updated(self, args: Any, kwargs: Any, result: Any) -> None:
        """An operation that is part of an update without an optimiser is done."""
        self.layers.is_updating = False
        self._may_have_stepped = True
        if not self.layers.stack:
            self.gradients.done(tensors_of(args, kwargs), tensors_of((result,), {}))

    def copied(self, source: Any, result: Any) -> None:
        """A tensor was made like another one."""
        if self.is_outside and isinstance(source, torch.Tensor):
            self.gradients.copied(source, result)

    def _end_last_step(self) -> None:
        """Without optimisers of torch a step ends where parameters have changed."""
        self._may_have_stepped = False
        if self._has_optimiser or self._optimisers or not self.gradients.have_changed():
            return
        if self._has_optimiser is None:
            self._has_optimiser = self.gradients.find_optimiser()
        if not self._has_optimiser:
            self.layers.end_step_before_forward()

    def _end_block(self) -> None:
        """A block without gradients is over: its places do not come again."""
        for _, place, _ in self._block_calls.values():
            self.clock.drop(place)
        self._block_calls.clear()

    def _enter(self, module: torch.nn.Module) -> None:
        """Parameters take the policy's format when their layer first runs."""
        if len(self.layers.stack) == 1:
            self._order(module)
            self.replicas.enter(module)
        self._entering.module(module, self.layers.name_of(module))

    def _order(self, root: torch.nn.Module) -> None:
        """Patterns as last2 mean layers of each module that the program calls."""
        if self.needs_order and root not in self._roots_in_order:
            self._roots_in_order.add(root)
            self.order(self.layers.with_weights(root))
            self._patterns = [p for p in self._patterns if not is_by_order(p)]

    def start_update(self, optimiser: torch.optim.Optimizer) -> None:
        """An optimiser is about to step."""
        if self.capture is not None:
            self.capture.event("update begins", optimiser)
        self._check_patterns()
        if self.meter is not None:
            self.meter.start_update(optimiser)
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        self.replicas.average(parameters, self.step)
        self._entering.of_optimiser(parameters)
        control = self.device.control
        is_first = optimiser not in self._optimisers  # operations without a rule show then
        self._optimisers.add(optimiser)
        if is_first or control.inv or control.div0 or control.oflo:
            self._undo = undoing(optimiser, parameters)
        self.changer.start(optimiser)
        self.handwritten.start(optimiser)
        keep_counters(optimiser, self.memory)
        self._form.start(optimiser)

    def failed(self) -> None:
        """An operation was stopped: a step that it belonged to has not happened."""
        if not self.layers.in_update:
            return
        if self._undo is not None:
            self._undo()
        self._undo = None
        self._form.end()
        self.changer.abandon()
        self.layers.in_update = False

    def start_backward(self) -> None:
        """With found_inf="status" the status register is about the backward passes of a step."""
        if self.capture is not None:
            self.capture.event("backward begins")
        self.replicas.changed(in_update=self.layers.in_update)
        self._may_have_stepped = True
        if self.options.found_inf == "status":
            self.status_before |= self.device.status_word
            self.device.status_word = self._status_of_passes

    def end_backward(self) -> None:
        """A backward pass is over."""
        if self.capture is not None:
            self.capture.event("backward ends")
        if self.meter is not None:
            self.meter.end_backward()
        self._status_of_passes |= self.device.status_word

    def scale_updated(self) -> None:
        """A gradient scaler is done with a step; one that it skipped counts too."""
        if not self._has_stepped:
            self.layers.end_step()
        self._has_stepped = False

    def go_on_at(self, step: int) -> None:
        """The next operations are of this step: what was numbered before is forgotten."""
        self.step = step
        self._forget_places()

    def _forget_places(self) -> None:
        self._calls.clear()
        self._block_calls.clear()
        self.clock.forget()

    def _note_state(self, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
        """What the state of an optimiser has of this session; {} where nothing depends on it."""
        if self.memory.is_plain and not self.device.control.esr:
            return {}
        entry = {
            "step": self.step, "seed": self.options.seed, "way": str(self.way),
            "formats": formats_of_state(optimiser, self.memory),
        }
        delayed = self.device.blocks.delayed.state()
        return entry | {"delayed": delayed} if delayed else entry

    def _resume(self, optimiser: torch.optim.Optimizer, entry: Mapping[str, Any]) -> None:
        """Go on at the step of a state that another session has written; never back."""
        if entry["way"] == str(self.way):
            mark_state(optimiser, self.memory, entry["formats"], self._formats)
            if "delayed" in entry:
                self.device.blocks.delayed.load(entry["delayed"])
        if entry["step"] > self.step:
            self.first_step += entry["step"] - self.step
            self.go_on_at(entry["step"])
            if self.device.control.esr and entry["seed"] != self.options.seed:
                warnings.warn(
                    f"the state of the optimiser comes from a session with seed {entry['seed']}, "
                    f"this one has seed {self.options.seed}: its random bits are others than those "
                    "of a training that was not interrupted",
                    RuntimeWarning,
                    stacklevel=4,
                )

    def _finish_step(self) -> None:
        if self.capture is not None:
            self.capture.event("step ends")
        self._form.end()
        for (parameter, fmt, before), wide in self.changer.finish():
            self.observer.note_update(parameter, fmt, before, wide - before)
        self.step_done(self.step)
        self.step += 1
        self.replicas.stepped(self.step)
        self._has_stepped = True
        if self.shadowing is not None:
            self.shadowing.end_step()
        self.stop_if_enough(self.step - self.first_step)
        self._undo = None
        self._may_have_stepped = False
        self._status_of_passes = 0
        self.memory.of_passes.clear()
        self.gradients.end_step()
        self._forget_places()
        if self.meter is not None:
            self.meter.finish_step()

    # Observation ----------------------------------------------------------------------------

    def writing(self, base: str, args: Any, kwargs: Any) -> Callable[[], None] | None:
        """What to do after an operation in place, which begins; an update is looked at."""
        layers = self.layers
        if not layers.is_updating and (not layers.in_update or self.changer.widens):
            return None
        return self.observer.writing(base, args, kwargs)

    def watch(self, see: Callable[[OperationEvent], object]) -> None:
        """Call `see` with the result of every operation that is computed from now on."""
        super().watch(see)
        self.memory.watch = self.note_result

    def digest(
        self, path: str | Path, keep: int | None = None, *, sketch: bool = False
    ) -> DigestFile:
        """Write a digest of every operation from now on; with sketches also of those of updates.

        Raises    OSError for a path that cannot be written.
        """
        self.is_by_operation = self.is_by_operation or sketch
        return super().digest(path, keep, sketch=sketch)

    def user_line(self) -> str:
        """FILE:LINE of the program, "" in the backward pass of a compiled one."""
        return errors.user_line()

    def operation_line(self) -> str:
        """The same of the operation that runs now, which may have many results."""
        if self._line is None:
            self._line = super().operation_line()
        return self._line

    def note_result(
        self, array: Array, operands: Sequence[Array], tally: ValueTally | None = None
    ) -> None:
        """The operation that runs now has this result, of these operands."""
        self.result(self.device.tensor, self._operation, array, operands, tally)

    def note_exponents(self, fmt: Format, exponents: NDArray[np.int64]) -> None:
        """Results of operations that run now, in a format, have these exponents."""
        self.recorder.results.add_counts(self.device.tensor, fmt, exponents)

    def shadow(self, steps: int = 1) -> Shadow:
        """Carry the values in binary64 beside all tensors of the next steps; it moves no bit.

        The report then has `shadow`: errors born and inherited by operation (`ipu.run.shadow`).
        Only operations inside of the session are followed: what a tensor holds when it is first
        read there is its shadow too.

        Raises    TypeError for steps that are no whole number, ValueError for fewer than one;
                  RuntimeError inside of the session.
        """
        if Session._open is self:
            raise RuntimeError("shadow(steps) is asked for before the session is entered")
        account = super().shadow(steps)
        self.shadowing = Shadowing(account, self)
        self.roots.on_loss = self.shadowing.loss
        self.changer.on_scaled = self.shadowing.scaled
        return account

    @property
    def is_outside(self) -> bool:
        """Whether no module runs."""
        return not self.layers.stack

    # Replay ---------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether operations of the program run on this session's device now."""
        return Session._open is self

    @property
    def may_have_stepped(self) -> bool:
        """Whether the next forward operation may be one behind the end of a step.

        With an optimiser of torch steps end where it says so.
        """
        return self._may_have_stepped and not (self._has_optimiser or self._optimisers)

    def captured(self, step: Callable[..., Any], check: int = 50) -> CapturedStep:
        """A step of the program, replayed without its Python once two in a row were alike.

        The step takes its batch as arguments, ends with the step of an optimiser of torch.optim,
        and returns tensors, which have no graph when it was replayed. Values, flags, counts and
        random bits are those of the step as it is. Learning rates and other numbers of parameter
        groups are read in every step. What replay cannot follow runs eagerly, and `reason` says
        why: numbers of tensors that Python reads, schedulers inside of the step, attributes that
        it sets.

        check    every so many steps one runs eagerly and is compared with what was captured.

        Raises    TypeError for a step that cannot be called; ValueError for check < 1.

        >>> import fpsim.torch
        >>> net = torch.nn.Linear(2, 1)
        >>> optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
        >>> def step(x):
        ...     optimiser.zero_grad()
        ...     loss = net(x).square().mean()
        ...     loss.backward()
        ...     optimiser.step()
        ...     return loss
        >>> with fpsim.torch.machine("fp16") as run:
        ...     replayed = run.captured(step)
        ...     losses = [replayed(torch.ones(3, 2)) for _ in range(6)]
        >>> replayed.eager, replayed.replayed, replayed.reason
        (3, 3, '')
        """
        if not callable(step):
            raise TypeError(f"step={step!r} cannot be called; give the function of one step")
        if isinstance(check, bool) or not isinstance(check, int) or check < 1:
            raise ValueError(f"check={check!r} is not a whole number of at least 1")
        return CapturedStep(self, step, check)

    # Recomputation --------------------------------------------------------------------------

    def _mark(self) -> tuple[ReplayStart, tuple[str, ...], int]:
        return self.clock.mark(), tuple(self.layers.stack), self.layers.micro_batch

    @contextmanager
    def _again(self, mark: tuple[ReplayStart, tuple[str, ...], int]) -> Iterator[None]:
        start, stack, micro_batch = mark
        with self.clock.replaying(start), self.layers.replaying(stack, micro_batch):
            yield

    # Report ---------------------------------------------------------------------------------

    @property
    def place(self) -> Place:
        """Where the operation that runs now stands."""
        return self.clock.place

    @property
    def status(self) -> FpSts:
        """$FP_STS: the bits of all operations so far."""
        return FpSts.from_word(self.device.status_word | self.status_before)

    def about(self) -> dict[str, Any]:
        """What a report has beyond that of every run.

        outside       processes and older threads of the program, in sentences: in no count.
        first_step    steps before this session are in no count either.
        """
        self.step_done(self.step)
        if self.shadowing is not None:
            self.shadowing.finish()
        operations = self.account.summary()["operations"]
        has_computed = operations["machine"] or operations["host"]
        return {
            "outside": list(self.outside.names),
            "steps": self.step - self.first_step,
            "first_step": self.first_step,
            "unreached": "" if has_computed else _UNREACHED,
            "versions": {
                "fpsim": fpsim.__version__, "torch": torch.__version__, "numpy": np.__version__,
            },
            "assumed": f"the operations that torch {torch.__version__} builds are what the "
            "vendor's compiler executes",
        }

    # Trials ---------------------------------------------------------------------------------

    def check_closed(self) -> None:
        """Refuse trials inside of a session.

        Raises    RuntimeError.
        """
        if Session._open is not None:
            raise RuntimeError("advise(step) opens sessions of its own; leave this one first")

    def again(
        self, way: Way, seed: int, restoring: Restoring = NOTHING_RESTORED
    ) -> Session:
        """A session like this one, in another way and with another seed, that counts.

        restoring    sites that compute in binary32.
        """
        options = replace(self.options.in_way(way, seed), restoring=restoring)
        return _make(options, self._unit, self._first)

    def tried(self, step: Step, seed: int) -> Sequence[float] | float | None:
        """What the program returns in this session; torch's generator is as it was before."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            with self:
                return step(seed)


def _targets(args: Any, kwargs: Any, written: Sequence[int | str]) -> list[torch.Tensor]:
    """The tensors among arguments that an operation writes, by their places."""
    targets = [kwargs.get(i) if isinstance(i, str) else args[i] for i in written]
    return [x for x in targets if isinstance(x, torch.Tensor)]


def machine(
    policy: PolicyArgument = "f32",
    *,
    sr: bool = False,
    seed: int = 0,
    count: bool = False,
    target: Target | str | None = None,
    ties: str = "first",
    nanoo: bool = False,
    traps: bool = False,
    found_inf: str = "values",
    preset: str = "window",
    f32_denormals: str = "flush",
    max_nan: str = "number",
    sums: str = "spread",
    unit: MatrixUnit | str | None = None,
    changes: Changes = NONE,
    step: int = 0,
    check_memory: bool = True,
) -> Session:
    """PyTorch code inside runs on a simulated machine.

    policy    formats: a text as "p=f16,c=f16,part=f16", "f16", "fp32", a `Policy`, or a mapping
              from patterns of module paths to these. float32 tensors hold values of c (parameters:
              p); float16 and bfloat16 tensors keep their own format.
    sr        stochastic rounding; its bits depend on the seed and on places (docs/semantics.md §2).
    count     count flags, zeros and subnormals by layer and direction.
    target    as in `ipu.machine.Device`, as are preset, f32_denormals, max_nan and sums.
    ties      of maximum pooling: "first", as PyTorch, or "all", as the machine's own rule.
    nanoo     overflow gives NaN; else it saturates.
    traps     invalid operations, divisions by zero and overflow stop the program where they occur.
    unit      with target="hypothetical": a unit of `fpsim list units` for the products of formats
              that it takes; everything else is then IEEE 754's. A model of the products alone.
    found_inf what gradient scalers look at: the "values" of gradients, which needs nanoo in
              binary16, or the "status" register of the backward pass.
    changes   of the program from outside, as `Changes(loss_scale=1024.0, eps=1e-4)`.
    step      the number of the first step, of a program that goes on from a checkpoint without the
              state of its optimiser.
    check_memory    a model of PopTorch's that does not fit the memory of an IPU is refused.

    Raises    ValueError for a policy that the target has no formats for; TypeError for switches
              that are neither True nor False.

    >>> import fpsim.torch
    >>> with fpsim.torch.machine(policy="fp16"):
    ...     print((torch.tensor([2048.0]) + 1).item())
    2048.0
    """
    if not isinstance(sr, bool):
        raise TypeError(f"sr={sr!r} is neither True nor False")
    options = RunOptions(
        policy=policy, sr=sr, seed=seed, count=count, target=target, ties=ties, nanoo=nanoo,
        traps=traps, found_inf=found_inf, preset=preset, f32_denormals=f32_denormals,
        max_nan=max_nan, sums=sums, changes=changes, check_memory=check_memory,
    )
    return _make(options, unit, check_step(step))


def native() -> Session:
    """PyTorch code inside runs by torch's own kernels, with the names and places of a session.

    Its digests stand beside those of `machine()`: where the machine leaves torch, `fpsim diff
    --tolerance` names the operation.

    >>> import fpsim.torch
    >>> with fpsim.torch.native() as run:
    ...     print(torch.tensor([0.1]).mul(3).item() == float(np.float32(0.1) * np.float32(3)))
    True
    """
    session = machine()
    session.is_native = session.is_by_operation = True
    return session


def _make(options: RunOptions, unit: MatrixUnit | str | None, step: int) -> Session:
    """A session on a device that has the formats of the policy."""
    device = find_device(
        options.way.policy, options.machine, options.control, unit=unit,
        **options.device_options,
    )
    return Session(device, options, unit=unit, step=step)
