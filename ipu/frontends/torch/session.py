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

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch

import fpsim
from fpsim.records.formats import BINARY32, Format
from fpsim.records.units import MatrixUnit
from ipu.frontends.common.account import Account, counted_name
from ipu.frontends.common.advising import Advised, advise
from ipu.frontends.common.changes import NONE, Changes
from ipu.frontends.common.places import Place, PlaceClock, Replay
from ipu.frontends.common.policies import PolicyArgument, find_policy
from ipu.frontends.common.recorder import Recorder
from ipu.frontends.common.report import describe
from ipu.frontends.common.text import Report
from ipu.frontends.common.trials import Outcome
from ipu.frontends.common.ways import Way
from ipu.frontends.pages.page import write_page
from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.changing import Changer, undoing
from ipu.frontends.torch.hypothetical import find_device, formats_of
from ipu.frontends.torch.kernels import without_whole_kernels
from ipu.frontends.torch.layers import Layers, Where
from ipu.frontends.torch.mode import MachineMode
from ipu.frontends.torch.observing import Observer, following_losses
from ipu.frontends.torch.recompute import repeating
from ipu.frontends.torch.replicas.alone import ALONE, Alone
from ipu.frontends.torch.threads import watching
from ipu.frontends.torch.trying import Step, run_step
from ipu.frontends.torch.values import Memory
from ipu.machine.control import FpCtl, FpSts, dump
from ipu.machine.device import Device
from ipu.machine.target import MK2, Target, find_target

__all__ = ["Session", "machine"]

_TIES = ("first", "all")
_FOUND_INF = ("values", "status")
#: What a program lacks of which nothing reaches the machine.
_UNREACHED = (
    "A session sees operations of PyTorch on floating-point tensors of the CPU, in this process "
    "and inside of `with machine(...)`: compute with those"
)


class Session:
    """What `machine` gives: a context manager, and after it a report.

    device    whose arithmetic it is.
    changes   of the program from outside.
    again     makes a session like this one, in another way and with another seed.
    """

    _open: Session | None = None

    def __init__(
        self, device: Device, policy: PolicyArgument, ties: str = "first",
        found_inf: str = "values", changes: Changes = NONE,
        again: Callable[[Way, int], Session] | None = None,
    ) -> None:  # fmt: skip
        if ties not in _TIES:
            raise ValueError(f"ties={ties!r} is not known; use first or all")
        if found_inf not in _FOUND_INF:
            raise ValueError(f"found_inf={found_inf!r} is not known; use values or status")
        self.policy = find_policy(policy)
        #: The policy, rounding and changes of the run.
        self.way = Way(self.policy, device.control.esr, changes)
        self._remake = again
        self._advised: Advised | None = None
        self.device, self.ties, self.found_inf = device, ties, found_inf
        self.clock = PlaceClock()
        device.clock = self.clock
        formats = formats_of(self.policy)
        for fmt in formats:
            device.context(fmt)  # refuses a format that the target lacks
        self.memory = Memory(device, is_plain=formats == {BINARY32})
        self.account = Account()
        #: Exponents, updates, losses; those of values only if the device counts.
        self.recorder = Recorder(device.counts)
        self.changer = Changer(changes, self.memory, self.call)
        self.halves_by_policy = changes.halves_by_policy
        self.layers = Layers(
            self._enter, self._start_update, self._finish_step, self._start_backward
        )
        self.observer = Observer(self.recorder, device, self.memory, self.layers)
        #: $FP_STS of what ran before the backward pass that the device's own register is about.
        self._status_before = 0
        self._has_stepped = False
        self._optimisers: WeakSet[torch.optim.Optimizer] = WeakSet()
        #: What brings back parameters and slots of the step that runs, if it may stop.
        self._undo: Callable[[], None] | None = None
        #: Steps of optimisers tried so far.
        self.step = 0
        #: The copy of the model that runs now, where a front end has several.
        self.replica = 0
        #: This process's replica among those of others.
        self.replicas: Alone = ALONE
        self._calls: dict[tuple[Where, bool, int], tuple[Call, Place, str]] = {}
        #: Parameters that have their format, by identity, and modules that ran.
        self._parameters: set[int] = set()
        self._entered: WeakSet[torch.nn.Module] = WeakSet()
        self._stack: ExitStack | None = None

    # Context manager ------------------------------------------------------------------------

    def __enter__(self) -> Session:
        if Session._open is not None:
            raise RuntimeError("a session is open already; leave it before another one begins")
        with ExitStack() as stack:
            Session._open = self
            stack.callback(self._close)
            self.layers.attach()
            stack.enter_context(without_whole_kernels())
            stack.enter_context(watching(self.account.native))
            stack.enter_context(repeating(self._mark, self._again, self.layers.region))
            factor = self.changer.changes.loss_scale
            stack.enter_context(following_losses(self._note_loss, self._note_scale, factor))
            stack.enter_context(self.replicas.running(lambda: self.step))
            stack.enter_context(MachineMode(self))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        assert self._stack is not None
        self._stack.__exit__(*error)

    def _close(self) -> None:
        Session._open = None
        self.layers.detach()
        self.changer.close()

    # Places ---------------------------------------------------------------------------------

    def call(self, operation: str) -> Call:
        """The operation of that name, without overload: its layer, policy and place."""
        layers, device = self.layers, self.device
        where = layers.where(operation)
        key = where, layers.is_replaying, self.replica
        known = self._calls.get(key)
        if known is None:
            known = self._calls[key] = self._new_call(*key)
        call, place, name = known
        self.clock.place = place
        device.tensor = name
        if device.counts is not None:
            device.counts.tensor = name
        return call

    def _new_call(self, where: Where, is_replaying: bool, replica: int) -> tuple[Call, Place, str]:
        """What operations of a layer, direction and micro-batch share in a step."""
        layer, direction, micro_batch = where
        call = Call(
            self.device, self.memory, self.policy.of(layer), layer, direction, self.ties,
            self._note_constant, self.found_inf,
        )  # fmt: skip
        shown = "recompute" if is_replaying else direction
        place = Place(self.step, micro_batch, replica, layer, direction)
        return call, place, counted_name(layer, shown)

    def _note_constant(
        self, layer: str, direction: str, fmt: Format, value: float, change: str
    ) -> None:
        self.account.constant(layer, direction, fmt, value, change)

    def _enter(self, module: torch.nn.Module) -> None:
        """Parameters take the policy's format when their layer first runs."""
        if len(self.layers.stack) == 1:
            self.replicas.enter(module)
        layer = self.layers.name_of(module)
        is_new = module not in self._entered
        if is_new:
            self._entered.add(module)
        for parameter in module.parameters(recurse=False):
            if not self.memory.is_plain:
                is_first = id(parameter) not in self._parameters
                self._parameters.add(id(parameter))
                self.memory.enter(parameter, self.policy.of(layer).param, is_first=is_first)
            if is_new:
                self.changer.follow(parameter)
                self.observer.note_weights(parameter)

    def _start_update(self, optimiser: torch.optim.Optimizer) -> None:
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        self.replicas.average(parameters, self.step)
        if not self.memory.is_plain:
            for parameter in parameters:
                self.memory.enter(parameter, self.policy.default.param)
        control = self.device.control
        is_first = optimiser not in self._optimisers  # operations without a rule show then
        self._optimisers.add(optimiser)
        if is_first or control.inv or control.div0 or control.oflo:
            self._undo = undoing(optimiser, parameters)
        self.changer.start(optimiser)

    def failed(self) -> None:
        """An operation was stopped: a step that it belonged to has not happened."""
        if not self.layers.in_update:
            return
        if self._undo is not None:
            self._undo()
        self._undo = None
        self.changer.abandon()
        self.layers.in_update = False

    def _start_backward(self) -> None:
        """With found_inf="status" the status register is about one backward pass."""
        self.replicas.changed(in_update=self.layers.in_update)
        if self.found_inf == "status":
            self._status_before |= self.device.status_word
            self.device.status_word = 0

    def scale_updated(self) -> None:
        """A gradient scaler is done with a step; one that it skipped counts too."""
        if not self._has_stepped:
            self.layers.end_step()
        self._has_stepped = False

    def go_on_at(self, step: int) -> None:
        """The next operations are of this step: what was numbered before is forgotten."""
        self.step = step
        self._calls.clear()
        self.clock.forget()

    def _finish_step(self) -> None:
        for (parameter, fmt, before), wide in self.changer.finish():
            self.observer.note_update(parameter, fmt, before, wide - before)
        self.observer.note_step(self.step)
        self.step += 1
        self.replicas.stepped(self.step)
        self._has_stepped = True
        self._undo = None
        self._calls.clear()
        self.clock.forget()

    # Observation ----------------------------------------------------------------------------

    def writing(self, base: str, args: Any, kwargs: Any) -> Callable[[], None] | None:
        """What to do after an operation in place is done; an optimiser's update is looked at."""
        if not self.layers.in_update or self.changer.widens:
            return None
        return self.observer.writing(base, args, kwargs)

    def _note_loss(self, root: torch.Tensor) -> None:
        self.recorder.loss(self.step, float(root.detach()) / self.recorder.scale)

    def _note_scale(self, scale: float) -> None:
        self.recorder.scale = scale

    def _in_way(self, way: Way, seed: int) -> Session:
        if self._remake is None:
            raise RuntimeError("this session was not made by machine(), which tries ways")
        return self._remake(way, seed)

    # Recomputation --------------------------------------------------------------------------

    def _mark(self) -> tuple[Replay, tuple[str, ...], int]:
        return self.clock.mark(), tuple(self.layers.stack), self.layers.micro_batch

    @contextmanager
    def _again(self, mark: tuple[Replay, tuple[str, ...], int]) -> Iterator[None]:
        start, stack, micro_batch = mark
        with self.clock.replaying(start), self.layers.replaying(stack, micro_batch):
            yield

    # Report ---------------------------------------------------------------------------------

    def report(self, folder: str | Path | None = None) -> Report:
        """What the run did, as a mapping whose text is for a terminal.

        folder    where the page is written too: index.html, report.json, report.txt.

        operations    calls by kind: machine, exact, host, integer.
        native        floating-point operations that ran natively: none.
        host          operations computed in binary64 on the host, and their share of all elements.
        constants     numbers that did not fit into the format that they were used in.
        note          what the target is not, of targets that are no IPU.
        layers        counters by layer and direction; this and the next need `count=True`.
        first         where overflow, division by zero and invalid operations began.
        exponents     histograms of weights, activations, gradients, updates, by layer and format.
        swallowed     updates that left their parameter as it was, by layer.
        loss_scale    present, highest safe and best.
        losses        where backward passes began, by step.
        units         products by matrix unit, and their share of all multiply-adds.
        versions      of fpsim, torch and numpy; what torch builds is ASSUMED to be what a vendor's
                      compiler executes.
        """
        self.observer.note_step(self.step)
        about = {
            "policy": str(self.policy),
            "note": self.device.target.note,
            "stochastic_rounding": self.device.control.esr,
            "changes": str(self.changer.changes),
            "steps": self.step,
            "status": dump(
                self.device.control,
                FpSts.from_word(self.device.status_word | self._status_before),
            ),
            "versions": {
                "fpsim": fpsim.__version__, "torch": torch.__version__, "numpy": np.__version__,
            },
        }  # fmt: skip
        recorder = self.recorder if self.observer.is_on else None
        report = Report(describe(self.account, self.device, recorder, about))
        if not (report["operations"]["machine"] or report["operations"]["host"]):
            report["unreached"] = _UNREACHED
        if folder is not None:
            write_page(Path(folder), report, self._advised or advise(report, self.way))
        return report

    def advise(
        self, step: Step | None = None, trials: Iterable[str | Way] | None = None, seeds: int = 3
    ) -> Advised:
        """What to change, with the evidence; with `step`, tried.

        step      `step(seed)` makes model, optimiser and data from that seed, trains some steps in
                  the session that is open, and returns their losses, or None for those at which
                  its backward passes began. It is called once for each way and seed, after
                  torch.manual_seed(seed), so that all ways start from equal states.
        trials    ways to try, as "fp16+sr+eps=1e-4+scale=1024"; None: those of the advice.
        seeds     runs of each way.

        Raises    RuntimeError inside of the session: the trials are sessions too.
        """
        if Session._open is not None and step is not None:
            raise RuntimeError("advise(step) opens sessions of its own; leave this one first")

        def run(way: Way, seed: int) -> Outcome:
            assert step is not None
            return run_step(self._in_way(way, seed), step, seed)

        report = self.report()
        self._advised = advise(report, self.way, run if step else None, trials, seeds)
        return self._advised


def machine(
    policy: PolicyArgument = "f32",
    *,
    sr: bool = False,
    seed: int = 0,
    count: bool = False,
    target: Target | str = MK2,
    ties: str = "first",
    nanoo: bool = False,
    traps: bool = False,
    found_inf: str = "values",
    preset: str = "window",
    f32_denormals: str = "flush",
    unit: MatrixUnit | str | None = None,
    changes: Changes = NONE,
) -> Session:
    """PyTorch code inside runs on a simulated machine.

    policy    formats: a text as "p=f16,c=f16,part=f16", "f16", "fp32", a `Policy`, or a mapping
              from patterns of module paths to these. float32 tensors hold values of c (parameters:
              p); float16 and bfloat16 tensors keep their own format.
    sr        stochastic rounding; its bits depend on the seed and on places (docs/semantics.md §2).
    count     count flags, zeros and subnormals by layer and direction.
    target    as in `ipu.machine.Device`, as are preset and f32_denormals.
    ties      of maximum pooling: "first", as PyTorch, or "all", as the machine's own rule.
    nanoo     overflow gives NaN; else it saturates.
    traps     invalid operations, divisions by zero and overflow stop the program where they occur.
    unit      with target="hypothetical": a unit of `fpsim list units` for the products of formats
              that it takes; everything else is then IEEE 754's. A model of the products alone.
    found_inf what gradient scalers look at: the "values" of gradients, which needs nanoo in
              binary16, or the "status" register of the backward pass.
    changes   of the program from outside, as `Changes(loss_scale=1024.0, eps=1e-4)`.

    Raises    ValueError for a policy that the target has no formats for; TypeError for switches
              that are neither True nor False.
    """
    chosen_target = find_target(target)
    for name, value in (("sr", sr), ("count", count), ("nanoo", nanoo), ("traps", traps)):
        if not isinstance(value, bool):
            raise TypeError(f"{name}={value!r} is neither True nor False")
    if not isinstance(changes, Changes):
        raise TypeError(f"changes={changes!r} is no fpsim.torch.Changes; as in Changes(eps=1e-4)")

    def make(way: Way, seed: int, *, count: bool = True, traps: bool = False) -> Session:
        control = FpCtl(inv=traps, div0=traps, oflo=traps, esr=way.sr, nanoo=nanoo)
        device = find_device(
            way.policy, chosen_target, control, unit=unit, seed=seed, count=count, preset=preset,
            f32_denormals=f32_denormals,
        )  # fmt: skip
        return Session(device, way.policy, ties, found_inf, way.changes, make)

    return make(Way(find_policy(policy), sr, changes), seed, count=count, traps=traps)
