"""A captured step: it runs eagerly until two steps in a row are alike, and is replayed then.

Replay runs the operations below autograd in their order, with the formats, the flags and the
random bits of an eager step: modules, autograd and torch.optim are left out, all that rounds is
not. Before each replay all that the step reaches in Python is looked at (`reachable`). What a tape
cannot hold is refused with a sentence, and runs eagerly.

Source    docs/semantics.md §2 (named addresses).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch.utils import _pytree as pytree

from ipu.frontends.torch.capture.reachable import PythonState
from ipu.frontends.torch.capture.recording import (
    RecordedSession,
    StepRecording,
    facts_of,
    storage_of,
)
from ipu.frontends.torch.capture.replay import ReplayedSession, StepReplay
from ipu.frontends.torch.capture.tape import StepTape, difference
from ipu.frontends.torch.replicas.alone import ALONE, Alone
from ipu.frontends.torch.shadowing import Shadowing
from ipu.machine.device import Device
from ipu.run.changes import NONE
from ipu.run.options import RunOptions

__all__ = ["CapturedStep"]

#: Attempts to find two steps alike, and how often a tape may become stale, for arguments alike.
_TRIES = 4
#: Kinds of arguments that are remembered.
_KEPT = 16


class CapturingSession(RecordedSession, ReplayedSession, Protocol):
    """What a captured step asks of a session."""

    device: Device
    options: RunOptions
    replicas: Alone
    shadowing: Shadowing | None
    capture: StepRecording | None

    @property
    def is_open(self) -> bool: ...
    @property
    def may_have_stepped(self) -> bool: ...


class _Ready(NamedTuple):
    """A step that can be replayed, and what it depends on."""

    replay: StepReplay
    tape: StepTape
    state: PythonState
    control: Any
    modes: tuple[Any, ...]


class _CapturedArguments:
    """What is known of steps with arguments alike."""

    def __init__(self) -> None:
        self.before: StepTape | None = None
        self.ready: _Ready | None = None
        self.n_failed = 0
        self.n_since_check = 0
        #: Whether steps with other numbers of parameter groups were compared.
        self.has_other_numbers = False
        self.reason = ""


class CapturedStep:
    """A step of a session that is replayed where it can be; called as the step itself.

    Tensors that it returns when it is replayed have no graph. Every `check`-th step runs eagerly
    and is compared with its tape.

    replayed, eager    steps so far; `checked` of the eager ones were compared.
    reason    why steps run eagerly, as the last one did; "" while nothing is against replay.
    native    operations of the last step that ran as native calls, below their handlers.
    why_handlers    why handlers ran for all of them in a step that was replayed; "" for nothing.
    """

    def __init__(
        self, session: CapturingSession, step: Callable[..., Any], check: int
    ) -> None:
        self._session, self._step, self._check = session, step, check
        self._kinds: dict[tuple[Any, ...], _CapturedArguments] = {}
        self.replayed = self.eager = self.checked = self.native = 0
        self.reason = self.why_handlers = ""
        #: Why the program cannot go on as an eager one; "" for nothing.
        self._stopped = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        session = self._session
        if not session.is_open:
            raise RuntimeError("a captured step is called inside of its session, `with run:`")
        if self._stopped:
            raise RuntimeError(self._stopped)
        if obstacle := self._obstacle():
            return self._eagerly(obstacle, args, kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        tensors = [x for x in leaves if isinstance(x, torch.Tensor)]
        key = self._key(leaves, spec)
        if key is None:
            return self._eagerly(
                "arguments are tensors without a graph and plain numbers and texts", args, kwargs
            )
        kind = self._kinds.get(key)
        if kind is None:
            if len(self._kinds) >= _KEPT:
                self._kinds.clear()
            kind = self._kinds[key] = _CapturedArguments()
        if kind.reason:
            return self._eagerly(kind.reason, args, kwargs)
        if kind.ready is None:
            return self._recorded(kind, tensors, args, kwargs)
        if stale := self._stale(kind.ready, tensors):
            kind.ready = kind.before = None
            self._failed(kind, f"{stale} has changed between steps")
            return self._recorded(kind, tensors, args, kwargs)
        kind.n_since_check += 1
        # A step may read a rate beside its optimiser: the first one with another is compared.
        is_first = not kind.has_other_numbers and kind.ready.tape.has_other_numbers()
        if is_first or kind.n_since_check >= self._check:
            kind.has_other_numbers |= is_first
            return self._checked(kind, tensors, args, kwargs, is_first=is_first)
        return self._replayed(kind.ready.replay, tensors)

    # Whether --------------------------------------------------------------------------------

    def _obstacle(self) -> str:
        """What about the session is against replay now; "" for nothing."""
        session, control = self._session, self._session.device.control
        layers, options = session.layers, session.options
        if control.inv or control.div0 or control.oflo:
            return "exceptions stop the program where they occur"
        if session.shadowing is not None or session.memory.alter is not None:
            return "the session looks at operations one by one"
        if options.changes != NONE or not options.restoring.is_empty:
            return "the session changes the program"
        if session.replicas is not ALONE:
            return "the program has replicas"
        if torch._C._len_torch_dispatch_stack() != 1 or not torch.is_grad_enabled():
            return "another mode of torch is on"
        layers.leave_backward()
        has_begun = layers.micro_batch or layers.stack or layers.in_update
        if has_begun or session.may_have_stepped:
            return "a part of the step has been computed before"
        return ""

    def _key(self, leaves: Sequence[Any], spec: Any) -> tuple[Any, ...] | None:
        """Of arguments: shapes, data types, formats, who shares memory, and numbers.

        Where in a larger tensor an argument lies is its own matter: batches are cut from data.
        """
        key: list[Any] = [spec]
        memory = self._session.memory
        #: Of each memory its number, and where the first tensor in it begins.
        begins: dict[int, tuple[int, int]] = {}
        for x in leaves:
            if isinstance(x, torch.Tensor):
                if type(x) is not torch.Tensor or x.requires_grad or x.layout != torch.strided:
                    return None
                first = len(begins), x.storage_offset()
                number, begin = begins.setdefault(storage_of(x), first)
                key += [facts_of(x, memory), memory.is_gradient(x)]
                key += [number, x.storage_offset() - begin]
            elif x is None or type(x) in (int, float, bool, str):
                key.append((type(x), repr(x)))
            else:
                return None
        return tuple(key)

    def _stale(self, ready: _Ready, tensors: Sequence[torch.Tensor]) -> str:
        """What is not as it was when the step was captured; "" for nothing."""
        tape = ready.tape
        if ready.control is not self._session.device.control:
            return "the control register"
        if ready.modes != _modes():
            return "a mode of torch"
        if path := ready.state.change(tape.declared):
            return path
        memory = self._session.memory
        for outside in tape.outside:
            if not outside.is_constant and facts_of(outside.tensor, memory) != outside.facts:
                return f"shape, format or kind of a tensor of shape {list(outside.tensor.shape)}"
        if any(storage_of(x) in tape.storages for x in tensors):
            return "who shares memory with an argument"
        if self._session.clock.drawn() != tape.start_counts:
            return "what was computed before the step"
        if tuple(leaf.grad is not None for leaf in tape.leaves) != tape.had_gradients:
            return "which parameters have gradients"
        return ""

    # Runs -----------------------------------------------------------------------------------

    def _eagerly(self, reason: str, args: Any, kwargs: Any) -> Any:
        self.eager += 1
        self.native, self.reason = 0, reason
        return self._step(*args, **kwargs)

    def _replayed(self, replay: StepReplay, tensors: Sequence[torch.Tensor]) -> Any:
        self.replayed += 1
        self.reason = ""
        try:
            result = replay.run(tensors)
        except Exception as error:
            self._stopped = (
                f"a replayed step was stopped by {type(error).__name__}, where an eager one has "
                "used other random bits and cleared gradients; run the step without captured() "
                "from the start"
            )
            error.add_note(self._stopped)
            raise
        self.native, self.why_handlers = replay.n_native, replay.why_handlers
        return result

    def _failed(self, kind: _CapturedArguments, reason: str) -> None:
        """An attempt has failed; with the last one the step is given up."""
        kind.n_failed += 1
        self.reason = reason
        if kind.n_failed >= _TRIES:
            self._give_up(kind, reason, 5)

    def _give_up(self, kind: _CapturedArguments, reason: str, stacklevel: int = 4) -> None:
        """Steps with arguments alike run eagerly from now on."""
        kind.reason = self.reason = reason
        kind.ready = kind.before = None
        warnings.warn(
            f"the captured step runs eagerly: {reason}", RuntimeWarning, stacklevel=stacklevel
        )

    def _noted(
        self, tensors: Sequence[torch.Tensor], args: Any, kwargs: Any
    ) -> tuple[Any, StepTape, PythonState, str]:
        """What the step gives, its tape, what it depends on, and why it cannot be replayed."""
        state = PythonState(self._step)
        leaves = [x for x in state.tensors if x.is_leaf and x.requires_grad]
        recording = StepRecording(self._session, tensors, leaves)
        self._session.capture = recording
        try:
            with recording.following():
                result = self._step(*args, **kwargs)
        finally:
            self._session.capture = None
        self.eager += 1
        self.native = 0
        layers = self._session.layers
        layers.leave_backward()
        if layers.micro_batch or self._session.may_have_stepped:
            recording.refuse("the step does not end with the step of an optimiser of torch.optim")
        tape = recording.finished(result)
        if path := state.change():
            recording.refuse(f"the step changes {path}, which replay would leave as it is")
        return result, tape, state, state.refusal or recording.reason

    def _recorded(
        self, kind: _CapturedArguments, tensors: Sequence[torch.Tensor], args: Any, kwargs: Any
    ) -> Any:
        """A step that is noted and compared with the one before."""
        if kind.reason:
            return self._eagerly(kind.reason, args, kwargs)
        result, tape, state, reason = self._noted(tensors, args, kwargs)
        before, kind.before = kind.before, None if reason else tape
        if not reason and before is None:
            self.reason = "the step has been noted once"
            return result
        reason = reason or difference(before, tape)  # type: ignore[arg-type]
        if reason:
            self._failed(kind, reason)
            return result
        kind.has_other_numbers = before.has_other_numbers(tape)  # type: ignore[union-attr]
        control = self._session.device.control
        replay = StepReplay(self._session, tape)
        kind.ready, kind.n_since_check = _Ready(replay, tape, state, control, _modes()), 0
        return result

    def _checked(
        self, kind: _CapturedArguments, tensors: Sequence[torch.Tensor], args: Any, kwargs: Any,
        *, is_first: bool,
    ) -> Any:
        """A step that runs eagerly, to be compared with its tape.

        is_first    of those with other numbers of parameter groups: no other one was replayed.

        Raises    RuntimeError where they differ: steps that were replayed since the last comparison
                  may have been others than the program's.
        """
        assert kind.ready is not None
        result, tape, _, reason = self._noted(tensors, args, kwargs)
        reason = reason or difference(kind.ready.tape, tape)
        if reason and is_first and kind.ready.state.names_groups:
            self._give_up(kind, f"the step reads numbers of its parameter groups: {reason}")
            return result
        if reason:
            raise RuntimeError(
                f"the captured step is another one now: {reason}; steps that were replayed since "
                "the last comparison may be wrong, so run it without captured()"
            )
        self.checked += 1
        kind.n_since_check = 0
        return result


def _modes() -> tuple[Any, ...]:
    """Switches of torch that decide what a program computes."""
    return (
        torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"),
        torch.get_default_dtype(), torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled(),
    )
