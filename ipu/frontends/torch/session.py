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

import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import fpsim
from fpsim.records.formats import BINARY32, Format
from fpsim.records.units import MatrixUnit
from ipu.frontends.common.account import Account, counted_name
from ipu.frontends.common.places import Place, PlaceClock, Replay
from ipu.frontends.common.policies import PolicyArgument, find_policy
from ipu.frontends.torch.aten import Call
from ipu.frontends.torch.hypothetical import find_device, formats_of
from ipu.frontends.torch.layers import Layers, Where
from ipu.frontends.torch.mode import MachineMode
from ipu.frontends.torch.recompute import repeating
from ipu.frontends.torch.values import Memory
from ipu.machine.control import FpCtl, FpSts, dump
from ipu.machine.device import Device
from ipu.machine.target import MK2, Target, find_target

__all__ = ["Session", "machine"]

_TIES = ("first", "all")
_FOUND_INF = ("values", "status")


class Session:
    """What `machine` gives: a context manager, and after it a report.

    device    whose arithmetic it is.
    """

    _open: Session | None = None

    def __init__(
        self, device: Device, policy: PolicyArgument, ties: str = "first",
        found_inf: str = "values",
    ) -> None:  # fmt: skip
        if ties not in _TIES:
            raise ValueError(f"ties={ties!r} is not known; use first or all")
        if found_inf not in _FOUND_INF:
            raise ValueError(f"found_inf={found_inf!r} is not known; use values or status")
        self.policy = find_policy(policy)
        self.device, self.ties, self.found_inf = device, ties, found_inf
        self.clock = PlaceClock()
        device.clock = self.clock
        formats = formats_of(self.policy)
        for fmt in formats:
            device.context(fmt)  # refuses a format that the target lacks
        self.memory = Memory(device, is_plain=formats == {BINARY32})
        self.account = Account()
        self.layers = Layers(
            self._enter, self._start_update, self._finish_step, self._start_backward
        )
        #: $FP_STS of what ran before the backward pass that the device's own register is about.
        self._status_before = 0
        self._has_stepped = False
        self._optimisers: WeakSet[torch.optim.Optimizer] = WeakSet()
        #: Parameters and slots with their values before the step that runs, if it may stop.
        self._before_update: list[tuple[torch.Tensor, torch.Tensor]] = []
        #: Steps of optimisers tried so far.
        self.step = 0
        self._calls: dict[tuple[Where, bool], tuple[Call, Place, str]] = {}
        self._stack: ExitStack | None = None

    # Context manager ------------------------------------------------------------------------

    def __enter__(self) -> Session:
        if Session._open is not None:
            raise RuntimeError("a session is open already; leave it before another one begins")
        with ExitStack() as stack:
            Session._open = self
            stack.callback(self._close)
            self.layers.attach()
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            if "torch._dynamo" in sys.modules:
                # Compiled modules run as they are written: a compiled graph is not seen here.
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(_without_mkldnn())
            stack.callback(
                torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled()
            )
            torch.backends.mha.set_fastpath_enabled(False)
            stack.enter_context(repeating(self._mark, self._again, self.layers.region))
            stack.enter_context(MachineMode(self))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        assert self._stack is not None
        self._stack.__exit__(*error)

    def _close(self) -> None:
        Session._open = None
        self.layers.detach()

    # Places ---------------------------------------------------------------------------------

    def call(self, operation: str) -> Call:
        """The operation of that name, without overload: its layer, policy and place."""
        layers, device = self.layers, self.device
        where = layers.where(operation)
        key = where, layers.is_replaying
        known = self._calls.get(key)
        if known is None:
            known = self._calls[key] = self._new_call(*key)
        call, place, name = known
        self.clock.place = place
        device.tensor = name
        if device.counts is not None:
            device.counts.tensor = name
        return call

    def _new_call(self, where: Where, is_replaying: bool) -> tuple[Call, Place, str]:
        """What operations of a layer, direction and micro-batch share in a step."""
        layer, direction, micro_batch = where
        call = Call(
            self.device, self.memory, self.policy.of(layer), layer, direction, self.ties,
            self._note_constant, self.found_inf,
        )  # fmt: skip
        shown = "recompute" if is_replaying else direction
        place = Place(self.step, micro_batch, 0, layer, direction)
        return call, place, counted_name(layer, shown)

    def _note_constant(
        self, layer: str, direction: str, fmt: Format, value: float, change: str
    ) -> None:
        self.account.constant(layer, direction, fmt, value, change)

    def _enter(self, module: torch.nn.Module) -> None:
        """Parameters take the policy's format when their layer first runs."""
        if self.memory.is_plain:
            return
        layer = self.layers.name_of(module)
        for parameter in module.parameters(recurse=False):
            self.memory.enter(parameter, self.policy.of(layer).param)

    def _start_update(self, optimiser: torch.optim.Optimizer) -> None:
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        if not self.memory.is_plain:
            for parameter in parameters:
                self.memory.enter(parameter, self.policy.default.param)
        control = self.device.control
        is_first = optimiser not in self._optimisers  # operations without a rule show then
        self._optimisers.add(optimiser)
        if is_first or control.inv or control.div0 or control.oflo:
            slots = [s for p in parameters for s in optimiser.state.get(p, {}).values()]
            tensors = [t for t in (*parameters, *slots) if isinstance(t, torch.Tensor)]
            self._before_update = [(t.detach(), t.detach().clone()) for t in tensors]

    def failed(self) -> None:
        """An operation was stopped: a step that it belonged to has not happened."""
        if not self.layers.in_update:
            return
        for tensor, values in self._before_update:
            tensor.copy_(values)
        self._before_update = []
        self.layers.in_update = False

    def _start_backward(self) -> None:
        """With found_inf="status" the status register is about one backward pass."""
        if self.found_inf == "status":
            self._status_before |= self.device.status_word
            self.device.status_word = 0

    def scale_updated(self) -> None:
        """A gradient scaler is done with a step; one that it skipped counts too."""
        if not self._has_stepped:
            self.layers.end_step()
        self._has_stepped = False

    def _finish_step(self) -> None:
        self.step += 1
        self._has_stepped = True
        self._before_update = []
        self._calls.clear()
        self.clock.forget()

    # Recomputation --------------------------------------------------------------------------

    def _mark(self) -> tuple[Replay, tuple[str, ...], int]:
        return self.clock.mark(), tuple(self.layers.stack), self.layers.micro_batch

    @contextmanager
    def _again(self, mark: tuple[Replay, tuple[str, ...], int]) -> Iterator[None]:
        start, stack, micro_batch = mark
        with self.clock.replaying(start), self.layers.replaying(stack, micro_batch):
            yield

    # Report ---------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """What the run did, as a mapping.

        operations    calls by kind: machine, exact, host, integer.
        native        floating-point operations that ran natively: none.
        host          operations computed in binary64 on the host, and their share of all elements.
        layers        counters by layer and direction, if the session counts.
        constants     numbers that did not fit into the format that they were used in.
        note          what the target is not, of targets that are no IPU.
        units         matrix units that computed products.
        versions      of fpsim, torch and numpy; what torch builds is ASSUMED to be what a vendor's
                      compiler executes.
        """
        return self.account.summary() | {
            "layers": self.account.layers(self.device.counts),
            "policy": str(self.policy),
            "target": self.device.target.name,
            "note": self.device.target.note,
            "units": sorted(self.device.units_used),
            "steps": self.step,
            "status": dump(
                self.device.control,
                FpSts.from_word(self.device.status_word | self._status_before),
            ),
            "versions": {
                "fpsim": fpsim.__version__, "torch": torch.__version__, "numpy": np.__version__,
            },
        }  # fmt: skip


@contextmanager
def _without_mkldnn() -> Iterator[None]:
    """Recurrent layers are cut into operations instead of running as one kernel."""
    flags = torch.backends.mkldnn.flags(enabled=False)
    with warnings.catch_warnings():
        # Setting a flag of these warns of Intel's graphics processors.
        warnings.simplefilter("ignore", UserWarning)
        flags.__enter__()
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            flags.__exit__(None, None, None)


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

    Raises    ValueError for a policy that the target has no formats for.
    """
    control = FpCtl(inv=traps, div0=traps, oflo=traps, esr=sr, nanoo=nanoo)
    chosen = find_policy(policy)
    device = find_device(
        chosen, find_target(target), control, unit=unit, seed=seed, count=count, preset=preset,
        f32_denormals=f32_denormals,
    )  # fmt: skip
    return Session(device, chosen, ties, found_inf)
