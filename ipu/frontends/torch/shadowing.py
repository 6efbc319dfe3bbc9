"""Shadows of torch's tensors: every operation runs once more in float64, by torch itself.

A shadow belongs to memory, as the values do: views and operations in place find it there. What is
computed of whole numbers alone, random numbers, and operations that torch has no float64 kernel
for begin anew from the machine's values; the last are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._python_dispatch import _disable_current_modes

from ipu.frontends.torch.exact import is_exact
from ipu.frontends.torch.gradients import Gradients
from ipu.frontends.torch.layers import Layers
from ipu.frontends.torch.owners import Owners
from ipu.frontends.torch.values import is_abstract, tensors_of
from ipu.machine.device import Device
from ipu.run.account import split_name
from ipu.run.shadow import Shadow, motion

__all__ = ["Shadowing"]

#: They write statistics of a batch that their schemas do not tell of.
_STATISTICS = {"native_batch_norm": (3, 4), "_native_batch_norm_legit": (3, 4)}
#: The scale of a gradient scaler is a number of the program, as random ones are.
_OF_HOST = frozenset(("_amp_update_scale_",))
#: What fills memory anew: where a motion begins.
_FILLING = frozenset((
    "zero_", "fill_", "uniform_", "normal_", "bernoulli_", "exponential_", "log_normal_",
    "cauchy_", "geometric_", "random_",
))
#: Sums whose result, of one pass of a loop, is an operand of the next one's.
_SUMS = frozenset(("add", "sub", "rsub", "lerp", "addcmul", "addcdiv"))
#: What such a sum may go through on its way to the next one.
_CARRYING = frozenset((
    "mul", "div", "clone", "copy_", "_to_copy", "where", "cat", "stack", "clamp", "roll", "relu",
    "clamp_min", "clamp_max", "constant_pad_nd", "lift_fresh_copy",
))
#: Loops of one line that are followed, each of another tensor.
_MOST_LOOPS = 16
#: Sums between a loop's result and its next pass, and loops that a tensor comes from, at most.
_MOST_SUMS, _MOST_CARRIED = 2, 4
#: Passes of a loop inside of one step, at least.
_PASSES = 8
#: Selections whose result is an operand or a limit: where it is which, is a choice.
_CLIPPING = frozenset((
    "relu", "relu_", "clamp", "clamp_", "clamp_min", "clamp_max", "clamp_min_", "clamp_max_",
    "hardtanh", "hardtanh_", "threshold", "maximum", "minimum",
))


class _SumLoop:
    """A sum that is computed of its last result again and again, in new memory each time.

    key        by which it is known: layer, direction, operation and line.
    result     of the first pass, the machine's and the shadow's values.
    before     the same, once there was another one; `after`: of the last pass.
    """

    __slots__ = ("after", "before", "key", "name", "passes", "result", "steps")

    def __init__(self, key: tuple[str, ...], name: str) -> None:
        self.key, self.name, self.passes = key, name, 1
        self.result: tuple[torch.Tensor, torch.Tensor] | None = None
        self.before: tuple[torch.Tensor, torch.Tensor] | None = None
        self.after: tuple[torch.Tensor, torch.Tensor] | None = None
        self.steps: set[int] = set()


class _Slot:
    """The shadow of one piece of memory.

    flat      its numbers, in the order of memory.
    error     relative, of the operation that wrote it last.
    """

    __slots__ = (
        "before", "dtype", "error", "flat", "is_filled", "is_state", "line", "loops", "operation",
        "shape", "steps", "writes",
    )

    def __init__(self, flat: torch.Tensor, dtype: torch.dtype, error: float = 0.0) -> None:
        self.flat, self.dtype, self.error = flat, dtype, error
        #: Its numbers are of the program; False of memory that nothing was written to yet.
        self.is_filled = True
        #: The machine's and the shadow's values before the first write in place.
        self.before: tuple[torch.Tensor, torch.Tensor] | None = None
        self.shape: tuple[int, ...] = ()
        self.operation = self.line = ""
        #: An optimiser's step wrote it last.
        self.is_state = False
        self.steps: set[int] = set()
        #: Times that its line has written it.
        self.writes = 0
        #: The loops whose last results it comes from, and by how many sums.
        self.loops: dict[_SumLoop, int] = {}


class _Overload(NamedTuple):
    """An operation of torch, and what is asked of it at each call.

    base       its name in aten; `name` with the namespace.
    written    places of the arguments that it writes.
    """

    func: Any
    base: str
    name: str
    written: Sequence[int | str]
    is_random: bool
    is_exact: bool

    @classmethod
    def of(cls, func: Any, written: Sequence[int | str]) -> _Overload:
        base = func._schema.name.partition("::")[2]
        draws = torch.Tag.nondeterministic_seeded in func.tags and base != "native_dropout"
        return cls(
            func, base, str(func).rpartition(".")[0], (*written, *_STATISTICS.get(base, ())),
            draws or base in _OF_HOST, is_exact(func))


class _Twin(NamedTuple):
    """An operation in float64.

    local    of the machine's operands; None: it rounds nothing.
    shadow   of their shadows.
    error    the largest relative error of an operand.
    """

    local: Any
    shadow: Any
    error: float


class ShadowSession(Protocol):
    """What shadows ask of a session."""

    device: Device
    gradients: Gradients
    layers: Layers
    step: int


class Shadowing:
    """The shadows of a session.

    account    is told of errors, choices and motions.
    """

    def __init__(self, account: Shadow, session: ShadowSession) -> None:
        self.account, self._session = account, session
        self._slots: WeakKeyDictionary[Any, _Slot] = WeakKeyDictionary()
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._last = session.step + account.steps
        #: Loops that have had a second pass.
        self._loops: list[_SumLoop] = []
        #: An operation runs, whose own operations are part of it.
        self._is_inside = False
        self.is_on = True

    @staticmethod
    @contextmanager
    def on_one_thread() -> Iterator[None]:
        """Inside, torch itself computes on one thread.

        Shadows are many short operations, at whose ends threads of OpenMP wait for each other by
        spinning: where other programs run too, that takes several times the work.
        """
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)

    # Memory ---------------------------------------------------------------------------------

    def value(self, x: torch.Tensor) -> torch.Tensor:
        """The shadow of a tensor, as a view of the shadow's memory."""
        return self._slot(x).flat.as_strided(x.size(), x.stride(), x.storage_offset())

    def name(self, x: torch.Tensor, name: str) -> None:
        """A parameter or buffer of a module has this name, and these values at first."""
        if self.is_on and _is_real(x):
            with _disable_current_modes():
                self._slot(x)
            self._names.setdefault(x.untyped_storage(), name)

    def scaled(self, source: torch.Tensor, result: torch.Tensor, factor: float) -> None:
        """A tensor that the session made is `factor` times another one."""
        if self.is_on:
            with _disable_current_modes():
                self._attach(result, self.value(source) * factor, self._slot(source).error)

    def _slot(self, x: torch.Tensor) -> _Slot:
        storage = x.untyped_storage()
        slot = self._slots.get(storage)
        if slot is None or slot.flat.numel() != storage.nbytes() // x.element_size():
            slot = self._slots[storage] = _Slot(_flat(storage, x.dtype), x.dtype)
        return slot

    def _attach(self, x: torch.Tensor, shadow: torch.Tensor, error: float) -> None:
        """A new tensor has this shadow."""
        storage = x.untyped_storage()
        n = storage.nbytes() // x.element_size()
        if n == x.numel() and x.is_contiguous():
            flat = shadow.contiguous().reshape(-1)
        else:
            flat = torch.zeros(n, dtype=torch.float64)
            flat.as_strided(x.size(), x.stride(), x.storage_offset()).copy_(shadow)
        self._slots[storage] = _Slot(flat, x.dtype, error)

    # Operations -----------------------------------------------------------------------------

    def beside(
        self, func: Any, written: Sequence[int | str], compute: Callable[[Any, Any], Any]
    ) -> Callable[[Any, Any], Any]:
        """How an overload runs whose shadow is computed beside it.

        compute    gives the machine's result.
        """
        is_view, overload = func.is_view and not written, _Overload.of(func, written)

        def run(args: Any, kwargs: Any) -> Any:
            if self._is_inside or not self.is_on:
                return compute(args, kwargs)
            if is_view:  # its shadow is one of its memory's
                return self._computed(compute, args, kwargs)
            return self._run(overload, args, kwargs, compute)

        return run

    def _computed(self, compute: Callable[[Any, Any], Any], args: Any, kwargs: Any) -> Any:
        """The machine's result."""
        self._is_inside = True
        try:
            return compute(args, kwargs)
        finally:
            self._is_inside = False

    def _run(
        self, overload: _Overload, args: Any, kwargs: Any, compute: Callable[[Any, Any], Any]
    ) -> Any:
        func, base, _, written, is_random, _ = overload
        targets = [x for x in tensors_of(*_written_of(written, args, kwargs)) if _is_real(x)]
        operands = [x for x in tensors_of(args, kwargs) if _is_real(x)]
        is_move = func.is_view and not targets
        for x in targets:
            # All of it anew: its motion goes on by its loop, if it has one.
            is_anew = base == "copy_" and _is_whole(x)
            self._note_write(x, "fill_" if is_anew else base)
        twin = None
        if operands and not is_move and not is_random:
            twin = self._twin(overload, args, kwargs, operands)
        result = self._computed(compute, args, kwargs)
        if is_move or (not operands and not any(map(_is_real, _results(result)))):
            return result
        if is_random:
            self._drop(targets or _results(result))
        elif "empty" in base:
            for x in filter(_is_real, _results(result)):
                self._slot(x).is_filled = False
        elif operands:
            self._take(overload, twin, result, targets, operands)
        else:
            self._made(func, args, kwargs, result)
        if operands and not is_move:
            self._follow_loop(base, operands, targets, result)
        return result

    def _follow_loop(
        self, base: str, operands: Sequence[torch.Tensor], targets: Sequence[torch.Tensor],
        result: Any,
    ) -> None:
        """A sum may be the next pass of a loop; other results may come from one."""
        x = targets[0] if targets else result
        if not _is_real(x):
            return
        if base in _CARRYING:
            self._slot(x).loops = self._loops_of(operands, x, 0)
        elif base in _SUMS:
            layers = self._session.layers
            layer = layers.stack[-1] if layers.stack else ""
            key = layer, base, self.account.line(), str(tuple(x.shape))
            carried = self._loops_of(operands, x, 1)
            loop = next((loop for loop in carried if loop.key == key), None)
            if loop is None:
                loop = _SumLoop(key, self._names.get(operands[0].untyped_storage(), ""))
                loop.result = _wide(x), self.value(x).clone()
            elif loop.before is not None or self._may_follow(key):
                self._next_pass(loop, x)
            self._slot(x).loops = {loop: 0, **{k: n for k, n in carried.items() if k is not loop}}

    def _loops_of(
        self, operands: Sequence[torch.Tensor], result: torch.Tensor, sums: int
    ) -> dict[_SumLoop, int]:
        """Loops whose last results these come from, by few sums at most."""
        loops = {
            loop: n + sums for y in operands if y is not result
            for loop, n in self._slot(y).loops.items() if n + sums <= _MOST_SUMS
        }
        return dict(list(loops.items())[:_MOST_CARRIED])

    def _may_follow(self, key: tuple[str, ...]) -> bool:
        return sum(loop.key == key for loop in self._loops) < _MOST_LOOPS

    def _next_pass(self, loop: _SumLoop, result: torch.Tensor) -> None:
        """A loop's sum was computed of its last result."""
        if loop.before is None:
            loop.before = loop.result
            self._loops.append(loop)
        loop.after = _wide(result), self.value(result).clone()
        loop.passes += 1
        loop.steps.add(self._session.step)

    def _twin(
        self, overload: _Overload, args: Any, kwargs: Any, operands: Sequence[torch.Tensor]
    ) -> _Twin | None:
        """The operation in float64; None, and told, where torch has no kernel for it."""
        error = max([self._slot(x).error for x in operands])
        func, written = overload.func, overload.written
        call = _AS.get(overload.base, func)
        try:
            local = None
            if not overload.is_exact:
                local = _call(call, written, args, kwargs, _wide)
            shadow = _call(call, written, args, kwargs, self.value)
        except (RuntimeError, TypeError, NotImplementedError, ValueError, IndexError) as problem:
            self.account.rejoined(str(func), str(problem).partition("\n")[0][:80])
            return None
        return _Twin(local, shadow, error)

    def _take(
        self, overload: _Overload, twin: _Twin | None, result: Any,
        targets: Sequence[torch.Tensor], operands: Sequence[torch.Tensor],
    ) -> None:
        """Results have their shadows; what they are beside them is told."""
        func, base = overload.func, overload.base
        results = list(_results(result))
        if twin is None:
            self._drop([*targets, *results])
            return
        shadows = list(_results(twin.shadow))
        locals_ = list(_results(twin.local)) if twin.local is not None else [None] * len(shadows)
        present = {x.untyped_storage()._cdata for x in (*targets, *operands)}
        key = self._key(overload.name, is_placed=twin.local is not None)
        if base == "native_dropout":  # the mask is the machine's
            shadows, locals_ = (
                [x[0] * results[1] / (1 - x[1]), results[1]] for x in (twin.shadow, twin.local))
        for x, shadow, local in zip(results or targets, shadows, locals_, strict=False):
            if x.is_complex():
                self.account.rejoined(str(func), "complex numbers have no shadow")
            if not _is_real(x):
                self._choices(key, x, shadow)
                continue
            error = twin.error
            if local is not None and x.numel():
                error = self.account.compared(
                    key, _numbers(x), local.numpy(), shadow.numpy(), twin.error)
            if base in _CLIPPING:
                first = operands[0]
                if first.shape == x.shape and x.untyped_storage()._cdata not in present:
                    self._choices(key, x == first, shadow == self.value(first))
            if x.untyped_storage()._cdata in present:
                self._slot(x).error = error
            else:
                self._attach(x, shadow, error)

    def _made(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Numbers were made of whole numbers or of constants: in float64 none is rounded."""
        takes = any(a.name == "dtype" for a in func._schema.arguments)
        if not takes or not isinstance(result, torch.Tensor):
            return
        wide = {**kwargs, "dtype": torch.float64}
        self._attach(result, func(*args, **wide), 0.0)

    def _choices(self, key: tuple[str, str, str], machine: Any, shadow: Any) -> None:
        """Whole numbers or truth values of the machine, and of the shadow."""
        if not isinstance(machine, torch.Tensor) or machine.shape != getattr(shadow, "shape", None):
            return
        if not (shadow.is_floating_point() or is_abstract(machine)):
            differing = int((machine != shadow).sum())
            self.account.branched(key, self._session.step, differing, machine.numel())

    def _drop(self, tensors: Sequence[torch.Tensor] | Iterator[torch.Tensor]) -> None:
        """The shadows of these begin anew from the machine's values."""
        for x in tensors:
            slot = self._slots.get(x.untyped_storage())
            if slot is not None and _is_real(x):
                slot.flat, slot.error = _flat(x.untyped_storage(), x.dtype), 0.0

    def _key(self, operation: str, *, is_placed: bool) -> tuple[str, str, str]:
        """Layer, direction and name of the operation that ran.

        is_placed    the session has placed it; one that rounds nothing it may not have.
        """
        layers = self._session.layers
        if is_placed:
            return *split_name(self._session.device.tensor), operation
        in_pass = torch._C._current_graph_task_id() != -1
        direction = "backward" if in_pass else "optimizer" if layers.in_update else "forward"
        return layers.stack[-1] if layers.stack else "", direction, operation

    # Updates --------------------------------------------------------------------------------

    @contextmanager
    def updating(
        self, operation: str, function: Callable[..., None], arguments: Mapping[str, Any],
        lists: Sequence[str],
    ) -> Iterator[None]:
        """Inside, an update of the machine computes what torch's function of a step does.

        lists    the arguments that are lists of parameters, gradients and slots, in that order.
        """
        with _disable_current_modes():
            for name in (*lists[:1], *lists[2:]):
                for x in filter(_is_real, arguments[name]):
                    self._note_write(x, operation)
            local, shadow = (
                _stepped(function, arguments, lists, read) for read in (_wide, self.value))
        yield
        with _disable_current_modes():
            for name in (*lists[:1], *lists[2:]):
                for x, near, far in zip(arguments[name], local[name], shadow[name], strict=True):
                    if _is_real(x):
                        self._updated(operation, x, near, far)

    def _updated(
        self, operation: str, x: torch.Tensor, local: torch.Tensor, shadow: torch.Tensor
    ) -> None:
        """A parameter or slot after its update."""
        slot = self._slots.get(x.untyped_storage())
        error = self.account.compared(
            ("optimizer", "optimizer", operation), _numbers(x), local.numpy(),
            shadow.numpy(), 0.0 if slot is None else slot.error)
        if slot is None:
            self._attach(x, shadow, error)
        else:
            slot.error = error

    # Steps ----------------------------------------------------------------------------------

    def loss(self, root: torch.Tensor) -> None:
        """A backward pass begins at a tensor of one element."""
        if self.is_on and _is_real(root):
            with _disable_current_modes(), torch.no_grad():
                machine, shadow = float(root.detach()), float(self.value(root.detach()))
            self.account.loss(self._session.step, machine, shadow)

    def _note_write(self, x: torch.Tensor, operation: str) -> None:
        slot = self._slot(x)
        if not slot.is_filled or operation in _FILLING:
            slot.is_filled, slot.before = True, None
            slot.steps.clear()
            slot.writes = 0
            return
        if slot.before is None:
            slot.before = _flat(x.untyped_storage(), x.dtype), slot.flat.clone()
        slot.steps.add(self._session.step)
        slot.is_state = self._session.layers.in_update
        slot.shape, slot.operation = tuple(x.shape), operation
        line = self.account.line()
        slot.line = slot.line or line
        slot.writes += slot.line == line

    def end_step(self) -> None:
        """A step is over."""
        if self._session.step >= self._last:
            self.finish()

    def finish(self) -> None:
        """The last step is over: what moved is told, and memory is free again."""
        if not self.is_on:
            return
        self.is_on = False
        with _disable_current_modes():
            self._tell_motions()
        self._slots.clear()
        self._names.clear()

    def _tell_motions(self) -> None:
        several = min(2, self.account.steps)
        owners: Owners | None = None
        for storage, slot in list(self._slots.items()):
            passes = max(len(slot.steps), slot.writes if slot.writes >= _PASSES else 0)
            if slot.before is None or passes < several:
                continue
            machine, shadow = slot.before
            ends = _flat(storage, slot.dtype), slot.flat
            if ends[0].numel() != machine.numel():
                continue
            is_copy = self._session.gradients.is_copy(storage)
            if is_copy and owners is None:
                owners = Owners()
            self._tell_motion(
                (machine, ends[0]), (shadow, ends[1]), passes, self._names.get(storage, ""),
                slot.shape, line=slot.line, operation=slot.operation, is_state=slot.is_state,
                is_parameter=self._is_parameter(storage, slot), is_copy=is_copy,
                owner=owners.of(storage) if is_copy and owners is not None else "")
        for loop in self._loops:
            assert loop.before is not None
            assert loop.after is not None
            if len(loop.steps) >= 2 or loop.passes >= _PASSES:
                (machine, shadow), ends = loop.before, loop.after
                self._tell_motion(
                    (machine, ends[0]), (shadow, ends[1]), loop.passes - 1, loop.name,
                    tuple(machine.shape), line=loop.key[2], operation=loop.key[1], is_state=False,
                    is_parameter=False)

    def _is_parameter(self, storage: Any, slot: _Slot) -> bool:
        """Whether an optimiser's step wrote it last, or the program an update by its gradient."""
        if slot.is_state:
            return storage in self._names
        return self._session.gradients.is_leaf(storage)

    def _tell_motion(
        self, machine: tuple[torch.Tensor, torch.Tensor], shadow: tuple[torch.Tensor, torch.Tensor],
        steps: int, name: str, shape: tuple[int, ...], **about: Any,
    ) -> None:
        ways = [tuple(x.reshape(-1).numpy() for x in pair) for pair in (machine, shadow)]
        how = motion((ways[0][0], ways[0][1]), (ways[1][0], ways[1][1]), steps)
        if how is not None:
            self.account.moved(name, shape, how, steps=steps, **about)


# Tensors ----------------------------------------------------------------------------------------


def _is_real(x: Any) -> bool:
    """Whether a value is a tensor of real numbers in memory."""
    return (
        isinstance(x, torch.Tensor) and x.dtype.is_floating_point and x.layout is torch.strided
        and not is_abstract(x)
    )


def _is_whole(x: torch.Tensor) -> bool:
    """Whether a tensor is all of its memory."""
    return bool(x.numel() == x.untyped_storage().nbytes() // x.element_size())


def _wide(x: torch.Tensor) -> torch.Tensor:
    """A copy in float64."""
    return x.detach().to(torch.float64, copy=True)


def _numbers(x: torch.Tensor) -> NDArray[np.floating]:
    """Its numbers, in float32 or float64."""
    is_narrow = x.dtype.itemsize < torch.float32.itemsize
    numbers: NDArray[np.floating] = (x.detach().float() if is_narrow else x.detach()).numpy()
    return numbers


def _flat(storage: Any, dtype: torch.dtype) -> torch.Tensor:
    """All of a piece of memory in float64."""
    numbers = torch.empty(0, dtype=dtype)
    numbers.set_(storage, 0, (storage.nbytes() // numbers.element_size(),), (1,))
    return numbers.to(torch.float64, copy=True)


def _stepped(
    function: Callable[..., None], arguments: Mapping[str, Any], lists: Sequence[str],
    read: Callable[[torch.Tensor], torch.Tensor],
) -> dict[str, Any]:
    """The arguments of torch's function of a step after it, with real tensors as `read` gives."""
    twins = {
        name: [read(x) if _is_real(x) else x for x in value] if name in lists else value
        for name, value in arguments.items()
    }
    function(**twins)
    return twins


def _results(result: Any) -> Iterator[Any]:
    """The tensors of a result, in order."""
    for x in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(x, (tuple, list)):
            yield from _results(x)
        elif isinstance(x, torch.Tensor):
            yield x


def _written_of(
    written: Sequence[int | str], args: Any, kwargs: Any
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments that are written."""
    values = [
        kwargs.get(i) if isinstance(i, str) else args[i] if i < len(args) else None
        for i in written
    ]
    return values, {}


def _call(
    func: Any, written: Sequence[int | str], args: Any, kwargs: Any,
    read: Callable[[torch.Tensor], torch.Tensor],
) -> Any:
    """The operation in float64, with real tensors as `read` gives them."""
    places = [_mapped(x, read, is_written=i in written) for i, x in enumerate(args)]
    names = {
        name: _mapped(x, read, is_written=name in written) for name, x in kwargs.items()
    }
    return func(*places, **names)


def _mapped(x: Any, read: Callable[[torch.Tensor], torch.Tensor], *, is_written: bool) -> Any:
    """An argument of an operation in float64."""
    if isinstance(x, torch.Tensor):
        if _is_real(x):
            return read(x)
        return x.clone() if is_written else x
    if isinstance(x, (list, tuple)):
        return type(x)([_mapped(item, read, is_written=is_written) for item in x])
    if isinstance(x, torch.dtype) and x.is_floating_point:
        return torch.float64
    return x


def _unscale(
    gradients: Sequence[torch.Tensor], is_infinite: torch.Tensor, inverse: torch.Tensor
) -> None:
    """Of a gradient scaler: the gradients are divided; what it found is the machine's."""
    for gradient in gradients:
        gradient.mul_(inverse)


def _dropout(x: torch.Tensor, p: float, train: bool | None = None) -> tuple[torch.Tensor, float]:
    """What is dropped out later, by the machine's mask."""
    return x, p if train is None or train else 0.0


#: Operations that torch's own kernels do not compute in float64 as they are.
_AS: dict[str, Callable[..., Any]] = {
    "_amp_foreach_non_finite_check_and_unscale_": _unscale,
    "native_dropout": _dropout,
}
