"""The mode below autograd: every aten operation goes to the table, a move, or the host.

Order: table, exact operation, our decomposition, host, refusal. How an overload runs is decided at
its first call and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from fpsim.records.formats import BINARY32
from fpsim.state.processor import usual_arithmetic
from ipu.frontends.torch.aten import TABLE, AtenEntry, Call
from ipu.frontends.torch.aten.table import NoFormatError
from ipu.frontends.torch.capture.recording import StepRecording
from ipu.frontends.torch.errors import error_of_torch, explained, is_foreign, refusal, user_line
from ipu.frontends.torch.exact import OF_REAL_NUMBERS, Move, is_exact
from ipu.frontends.torch.host import on_host
from ipu.frontends.torch.lists import is_of_lists, one_by_one
from ipu.frontends.torch.native import native_plan
from ipu.frontends.torch.pieces import PIECEWISE
from ipu.frontends.torch.shadowing import Shadowing
from ipu.frontends.torch.single import is_fused, run_fused
from ipu.frontends.torch.values import (
    EIGHTHS,
    FORMATS,
    HALVES,
    Memory,
    is_abstract,
    round_in_place,
    tensors_of,
    to_narrow,
)
from ipu.ops.listing import Listing
from ipu.run.account import Account

__all__ = ["MachineMode"]

#: Operations that torch's own rules cut into operations of the table.
_DECOMPOSED = frozenset(
    (
        "hardswish", "hardswish_backward", "hardsigmoid", "hardsigmoid_backward", "huber_loss",
        "huber_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "addr",
    )
)
#: Operations whose results keep the channels of their images last.
_OF_IMAGES = frozenset(
    (
        "convolution", "native_batch_norm", "_native_batch_norm_legit",
        "_batch_norm_with_update", "max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d",
        "upsample_bilinear2d", "native_group_norm",
    )
)
#: Real numbers with a format of the machine, and wider ones.
_REAL = {torch.float32, torch.float64, *FORMATS}
#: Operations that make copies of parameters, or tensors that updates keep beside them.
_LIKE = {torch.ops.aten.clone.default, torch.ops.aten.zeros_like.default}
Plan = Callable[[tuple[Any, ...], dict[str, Any]], Any]


class ResolvedOverload(NamedTuple):
    """How an overload runs from its first call on.

    name          of the operation, without overload, that computes what it writes.
    written       places of the arguments that it writes.
    is_copying    it makes copies of parameters, or tensors that updates keep beside them.
    is_view       it gives a view of its argument, which holds the same format.
    """

    overload: Any
    plan: Plan
    name: str
    written: Sequence[int | str]
    is_copying: bool
    is_view: bool


class ModeSession(Protocol):
    """What the mode asks of a session."""

    memory: Memory
    account: Account
    halves_by_policy: bool
    listing: Listing | None
    shadowing: Shadowing | None
    capture: StepRecording | None
    is_native: bool

    @property
    def is_outside(self) -> bool: ...
    def listed(self, func: Any, args: Any, kwargs: Any) -> None: ...
    def call(self, operation: str) -> Call: ...
    def look(
        self, name: str, tensors: list[torch.Tensor], args: Any, kwargs: Any,
        written: Sequence[int | str],
    ) -> bool: ...
    def updated(self, args: Any, kwargs: Any, result: Any) -> None: ...
    def copied(self, source: Any, result: Any) -> None: ...
    def writing(self, base: str, args: Any, kwargs: Any) -> Callable[[], None] | None: ...
    def scale_updated(self) -> None: ...
    def failed(self) -> None: ...


class MachineMode(TorchDispatchMode):  # type: ignore[misc]
    """Runs operations on the machine of a session."""

    def __init__(self, program: ModeSession) -> None:
        super().__init__()
        self._program = program
        self._memory = program.memory
        #: By identity of the overload, which the record holds.
        self._ways: dict[int, ResolvedOverload] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; torch's guard against it costs as much as an operation."""
        return False

    @usual_arithmetic
    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if kwargs and self._program.halves_by_policy and kwargs.get("dtype") in HALVES:
            kwargs = kwargs | {"dtype": torch.float32}
            self._program.account.makes_halves = True
        tensors = tensors_of(args, kwargs or {})
        for x in tensors:
            if x.is_meta or type(x) is FakeTensor:
                return func(*args, **(kwargs or {}))
        if kwargs and _is_for_meta(kwargs.get("device")):
            return func(*args, **kwargs)
        way = self._ways.get(id(func))
        if way is None:
            way = self._ways[id(func)] = self._resolved(func)
        program, account = self._program, self._program.account
        noted = account.noted
        if program.listing is not None:
            program.listed(func, args, kwargs or {})
        try:
            is_update = program.look(way.name, tensors, args, kwargs or {}, way.written)
            result = self._computed(way, args, kwargs or {}, is_update)
            if is_update:
                program.updated(args, kwargs or {}, result)
            elif way.is_copying:
                program.copied(args[0], result)
        except Exception as error:
            raised = self._stopped(error, func, args, kwargs or {})
            if raised is error:
                raise
            raise raised from None
        if account.noted == noted and _is_float(result):
            account.native(str(func))
        return result

    def _computed(self, way: ResolvedOverload, args: Any, kwargs: Any, is_update: bool) -> Any:
        """The result of an operation, which is noted in a step that is captured."""
        capture = self._program.capture
        if capture is None:
            return way.plan(args, kwargs)
        with capture.inside():
            result = way.plan(args, kwargs)
        capture.operation(
            way.overload, way.plan, args, kwargs, result, is_view=way.is_view,
            is_copied=way.is_copying and self._program.is_outside, is_update=is_update,
        )
        return result

    def _stopped(self, error: Exception, func: Any, args: Any, kwargs: Any) -> Exception:
        """Tell once where the program was stopped; a step that it belonged to has not happened."""
        if getattr(error, "__notes__", None):
            return error
        call = self._program.call(_name(func))
        error = explained(error, func, call, args, kwargs)
        at = f", at {line}" if (line := user_line()) else ""
        error.add_note(f"in {func}, layer {call.layer!r} ({call.direction}){at}")
        self._program.failed()
        return error

    # How ------------------------------------------------------------------------------------

    def _resolved(self, func: Any) -> ResolvedOverload:
        plan, written, shadowing = self._plan(func), _written(func), self._program.shadowing
        if shadowing is not None:
            plan = shadowing.beside(func, written, plan)
        is_view = is_exact(func) and func.is_view and not written and not _is_composite(func)
        name = _name(func).removesuffix("_")
        return ResolvedOverload(func, plan, name, written, func in _LIKE, is_view)

    def _plan(self, func: Any) -> Plan:
        """How an overload runs from now on."""
        namespace, _, base = func._schema.name.partition("::")
        entry = _entry_of(func)
        written = [i for i, a in enumerate(func._schema.arguments) if _is_written(a)]
        if entry is not None and not self._program.is_native:
            return self._machine(func, entry)
        if namespace == "prims" and hasattr(func, "impl_aten"):
            return lambda args, kwargs: self._primitive(func, args, kwargs)
        if namespace == "aten" and is_of_lists(base):
            return lambda args, kwargs: self._listed(func, args, kwargs)
        if is_fused(base):
            return lambda args, kwargs: self._fused(func, args, kwargs)
        if self._program.is_native:
            return self._native(func, written)
        if base == "copy_":
            return lambda args, kwargs: self._copy(*args, **kwargs)
        pure = _functional(func, written) if written else None
        if is_exact(func) and (pure is None or _entry_of(pure) is None):
            return self._exact(func, written)
        if written:
            return self._in_place(func, written)
        if base in _DECOMPOSED:
            return lambda args, kwargs: self._decomposed(func, args, kwargs)
        if func._can_decompose() and _is_composite(func):
            return lambda args, kwargs: self._composite(func, args, kwargs)
        return lambda args, kwargs: self._rest(func, args, kwargs)

    def _native(self, func: Any, written: list[int]) -> Plan:
        """torch's own kernel; what the machine only moves is told by nobody there either."""
        pure = _functional(func, written) if written else None
        computes = _entry_of(func) is not None or (pure is not None and _entry_of(pure) is not None)
        if not computes and (is_exact(func) or func._schema.name == "aten::copy_"):
            return lambda args, kwargs: func(*args, **kwargs)
        return native_plan(self._program, func, _name(func if pure is None else pure))

    def _machine(self, func: Any, entry: AtenEntry) -> Plan:
        """The entry's handler; the host, where it knows no rule for the arguments."""
        program, handler, name, packet = self._program, entry.handler, str(func), _name(func)
        memory, base = self._memory, func._schema.name.partition("::")[2]
        is_pointwise, of_images = torch.Tag.pointwise in func.tags, base in _OF_IMAGES
        add, scales = program.account.add, entry.name == "_amp_update_scale_.default"
        kind = "host" if entry.on_host else "machine"

        def run(args: Any, kwargs: Any) -> Any:
            for x in args:
                if isinstance(x, torch.Tensor) and x.dtype in _NUMBERS:
                    break
            else:
                if not _has_float(args, kwargs):
                    result = func(*args, **kwargs)
                    if not _is_float(result):
                        add("integer", name, 0)
                        return result
            call = program.call(packet)
            try:
                result = handler(call, *args, **kwargs)
            except NoFormatError:
                result = NotImplemented
            if result is NotImplemented:
                return self._host(call, func, args, kwargs)
            add(kind, name, _elements(result))
            if scales:
                program.scale_updated()
            if is_pointwise:
                return memory.laid_as_operands(result, args)
            return memory.laid_as_images(result, args) if of_images else result

        return run

    def _rest(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not _has_float(args, kwargs):
            result = func(*args, **kwargs)
            if not _is_float(result):
                self._program.account.add("integer", str(func), 0)
                return result
        return self._host(self._program.call(_name(func)), func, args, kwargs)

    def _host(self, call: Call, func: Any, args: Any, kwargs: Any) -> Any:
        _refuse_unknown(func, call, args, kwargs)
        try:
            result = on_host(call, func, args, kwargs)
        except FloatingPointError:
            raise
        except Exception:  # no kernel in binary64: the error of the program, or no rule
            raise error_of_torch(func, args, kwargs) or refusal(func, call) from None
        self._program.account.add("host", str(func), _elements(result))
        return result

    def _decomposed(self, func: Any, args: Any, kwargs: Any) -> Any:
        from torch._decomp import decomposition_table

        with self:
            if "_backward" in func._schema.name and not args[1].numel():
                return torch.zeros_like(args[1])  # torch's words for it divide by the number
            words = PIECEWISE.get(func) or decomposition_table[func]
            return words(*args, **kwargs)

    def _primitive(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What derivatives of derivatives are written in, by torch's own words for it."""
        with self:
            return func.impl_aten(*args, **kwargs)

    def _composite(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self:
            return func.decompose(*args, **kwargs)

    # In place -------------------------------------------------------------------------------

    def _in_place(self, func: Any, written: list[int]) -> Plan:
        """The functional form computes; its results are copied."""
        pure = _functional(func, written)
        names = [func._schema.arguments[i].name for i in written]
        is_out = func._schema.arguments[written[0]].kwarg_only
        if pure is None:
            return lambda args, kwargs: self._no_functional(func, args, kwargs)
        compute = self._plan(pure)
        base = pure._schema.name.partition("::")[2]

        def run(args: Any, kwargs: Any) -> Any:
            if not _has_float(args, kwargs):
                self._program.account.add("integer", str(func), 0)
                return func(*args, **kwargs)
            targets = [kwargs[n] for n in names] if is_out else [args[i] for i in written]
            if not is_out and targets[0].ndim == 0:
                self._keep_counter(targets[0], base)
            rest = {k: v for k, v in kwargs.items() if k not in names} if is_out else kwargs
            done = self._program.writing(base, args, rest)
            results = compute(args, rest)
            for target, result in zip(
                targets, results if isinstance(results, tuple) else (results,), strict=True
            ):
                is_same = result.dtype is target.dtype
                if not is_same and not torch.can_cast(result.dtype, target.dtype):
                    raise TypeError(f"{func} cannot put {result.dtype} into {target.dtype}")
                if is_out and target.shape != result.shape:
                    target.resize_(result.shape)
                self._store(target, result)
            if done is not None:
                done()
            return targets[0] if len(targets) == 1 else tuple(targets)

        return run

    def _keep_counter(self, number: torch.Tensor, base: str) -> None:
        """A single number that an optimiser has just made counts in binary32 from the start."""
        is_new = number.dtype is torch.float32 and self._memory.format_of(number) is None
        if is_new and self._program.call(f"aten.{base}").is_update:
            self._memory.mark(number, BINARY32)

    def _no_functional(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not _has_float(args, kwargs):
            self._program.account.add("integer", str(func), 0)
            return func(*args, **kwargs)
        raise refusal(func, self._program.call(_name(func)))

    def _listed(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self:
            return one_by_one(func, args, kwargs)

    def _fused(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self:
            return run_fused(func, args, kwargs)

    def _copy(self, target: torch.Tensor, source: torch.Tensor, *_: Any, **__: Any) -> Any:
        """target.copy_(source): a cast where the formats differ."""
        self._program.account.add("exact", "aten.copy_.default", 0)
        return self._store(target, source)

    def _store(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """Copy what was computed into a tensor, which keeps its format."""
        memory, notes = self._memory, self._memory.device.notes
        memory.moved((source,), target)
        held = memory.format_of(target)
        source_format = memory.format_of(source)
        if held is source_format and held is not None:
            target.copy_(source)
            if notes is not None:
                notes.note((source.numpy(),), (target.numpy(),), lambda *_: (
                    target.copy_(source) is target
                ))
            return target
        if notes is not None:
            notes.refuse()
        if target.dtype in EIGHTHS and source.dtype in _REAL and source.dtype != target.dtype:
            call = self._program.call("aten.copy_")
            cast = TABLE["_to_copy.default"].handler(call, source, dtype=target.dtype)
            target.copy_(cast)
            return target
        if source.dtype == torch.float64 and target.dtype in FORMATS:
            source = to_narrow(source, target.dtype)
        if (
            source_format is None
            or not target.dtype.is_floating_point
            or target.dtype == torch.float64
        ):
            target.copy_(source)
            if held not in (None, BINARY32) and target.dtype == torch.float32:
                round_in_place(target, held)
            return target
        is_all = target.numel() * target.element_size() == target.untyped_storage().nbytes()
        if held is None:
            target.copy_(source)
            if is_all:
                memory.mark(target, source_format)
            return target
        if held != source_format:
            call = self._program.call("aten.copy_")
            array = call.device.cast(memory.read(source, source_format), held)
            source = memory.write(array, target.dtype)
        target.copy_(source)
        return target

    # Exact ----------------------------------------------------------------------------------

    def _exact(self, func: Any, written: list[int]) -> Plan:
        """The operation as it is; of complex numbers, what computes is the host's."""
        packet, program = _name(func), self._program
        move = Move(
            func, _written(func), self._memory, program.account, lambda: program.call(packet)
        )
        # A view has the storage of what it is of, which knows its format.
        is_marked = func.is_view and not written and not _is_composite(func)
        run = move.plain if self._memory.is_plain or is_marked else move.marked
        if func._schema.name.partition("::")[2].removesuffix("_") not in OF_REAL_NUMBERS:
            return run

        def of_any_numbers(args: Any, kwargs: Any) -> Any:
            if any(x.is_complex() for x in tensors_of(args, kwargs)):
                return self._rest(func, args, kwargs)
            return run(args, kwargs)

        return of_any_numbers


# Overloads --------------------------------------------------------------------------------------


def _name(func: Any) -> str:
    """The name of an operation without its overload."""
    return str(func).rpartition(".")[0]


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _written(func: Any) -> list[int | str]:
    """Places of the arguments that an overload writes: names of keywords, numbers of others."""
    arguments = enumerate(func._schema.arguments)
    return [a.name if a.kwarg_only else i for i, a in arguments if _is_written(a)]


def _entry_of(func: Any) -> AtenEntry | None:
    """Of an overload, in the table."""
    namespace, _, base = func._schema.name.partition("::")
    return TABLE.get(f"{base}.{func._overloadname}") if namespace == "aten" else None


def _is_composite(func: Any) -> bool:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(func.has_kernel_for_dispatch_key(key))


def _functional(func: Any, written: list[int]) -> Any:
    """The overload without side effects that takes the other arguments, if there is one."""
    schema = func._schema
    base = schema.name.partition("::")[2]
    is_out = schema.arguments[written[0]].kwarg_only
    arguments_left = [a for i, a in enumerate(schema.arguments) if not (is_out and i in written)]
    wanted = [(a.name, str(a.type)) for a in arguments_left]
    packet = getattr(torch.ops.aten, base if is_out else base.removesuffix("_"), None)
    for overload in packet.overloads() if packet is not None else ():
        candidate = getattr(packet, overload)
        arguments = candidate._schema.arguments
        if [(a.name, str(a.type)) for a in arguments] == wanted and not any(
            map(_is_written, arguments)
        ):
            return candidate
    return None


def _refuse_unknown(func: Any, call: Call, args: Any, kwargs: Any) -> None:
    """Operations of other libraries, other devices and random ones have no rule."""
    is_aten = func._schema.name.startswith("aten::")
    foreign = any(map(is_foreign, tensors_of(args, kwargs)))
    if not is_aten or foreign or torch.Tag.nondeterministic_seeded in func.tags:
        raise refusal(func, call)


# Arguments --------------------------------------------------------------------------------------


#: Data types of real and complex numbers.
_NUMBERS = frozenset(
    kind for kind in vars(torch).values()
    if isinstance(kind, torch.dtype) and (kind.is_floating_point or kind.is_complex)
)


def _is_for_meta(device: Any) -> bool:
    """Whether a result is asked for as a shape alone."""
    return device is not None and torch.device(device).type == "meta"


def _has_float(args: Any, kwargs: Any) -> bool:
    """Whether real or complex numbers are among the arguments, of which none is a shape alone."""
    for x in args:
        if isinstance(x, torch.Tensor):
            if x.dtype in _NUMBERS:
                return True
        elif isinstance(x, (list, tuple)) and _is_float(x):
            return True
    return bool(kwargs) and _is_float(tuple(kwargs.values()))


def _is_float(result: Any) -> bool:
    results = result if isinstance(result, (tuple, list)) else (result,)
    return any(
        isinstance(x, torch.Tensor) and x.dtype in _NUMBERS and not is_abstract(x) for x in results
    )


def _elements(result: Any) -> int:
    if isinstance(result, torch.Tensor):
        return int(result.numel())
    results = result if isinstance(result, (tuple, list)) else (result,)
    return sum(x.numel() for x in results if isinstance(x, torch.Tensor))
