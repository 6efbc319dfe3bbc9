"""The mode below autograd: every aten operation goes to the table, a move, or the host.

Order: table, exact operation, our decomposition, host, refusal. How an overload runs is decided at
its first call and kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fpsim.convenience import round_to
from fpsim.records.formats import BINARY32
from ipu.frontends.common.account import Account
from ipu.frontends.torch.aten import TABLE, Call, Entry
from ipu.frontends.torch.aten.pointwise import number_of
from ipu.frontends.torch.aten.table import NoFormatError
from ipu.frontends.torch.exact import constants_of, is_exact
from ipu.frontends.torch.host import on_host
from ipu.frontends.torch.lines import user_line
from ipu.frontends.torch.lists import each, is_fused, is_of_lists
from ipu.frontends.torch.values import Memory

__all__ = ["MachineMode"]

#: Operations that torch's own rules cut into operations of the table.
_DECOMPOSED = frozenset(
    (
        "hardswish", "hardswish_backward", "hardsigmoid", "hardsigmoid_backward", "huber_loss",
        "huber_loss_backward", "smooth_l1_loss", "smooth_l1_loss_backward", "addr",
    )
)  # fmt: skip
Plan = Callable[[tuple[Any, ...], dict[str, Any]], Any]


class Program(Protocol):
    """What the mode asks of a session."""

    memory: Memory
    account: Account

    def call(self, operation: str) -> Call: ...
    def scale_updated(self) -> None: ...
    def failed(self) -> None: ...


class MachineMode(TorchDispatchMode):  # type: ignore[misc]
    """Runs operations on the machine of a session."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program = program
        self._memory = program.memory
        self._plans: dict[Any, Plan] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here; torch's guard against it costs as much as an operation."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = self._plan(func)
        account = self._program.account
        noted = account.noted
        try:
            result = plan(args, kwargs or {})
        except Exception as error:
            self._stopped(error, func)
            raise
        if account.noted == noted and _is_floating(result):
            account.native(str(func))
        return result

    def _stopped(self, error: Exception, func: Any) -> None:
        """Tell once where the program was stopped; a step that it belonged to has not happened."""
        if getattr(error, "__notes__", None):
            return
        call = self._program.call(_name(func))
        at = f", at {line}" if (line := user_line()) else ""
        error.add_note(f"in {func}, layer {call.layer!r} ({call.direction}){at}")
        self._program.failed()

    # How ------------------------------------------------------------------------------------

    def _plan(self, func: Any) -> Plan:
        """How an overload runs from now on."""
        namespace, _, base = func._schema.name.partition("::")
        entry = TABLE.get(f"{base}.{func._overloadname}") if namespace == "aten" else None
        written = [i for i, a in enumerate(func._schema.arguments) if _is_written(a)]
        if entry is not None:
            return self._machine(func, entry)
        if namespace == "prims" and hasattr(func, "impl_aten"):
            return lambda args, kwargs: self._primitive(func, args, kwargs)
        if namespace == "aten" and is_of_lists(base):
            return lambda args, kwargs: self._listed(func, args, kwargs)
        if is_fused(base):
            return lambda args, kwargs: self._fused(func)
        if base == "copy_":
            return lambda args, kwargs: self._copy(*args, **kwargs)
        if is_exact(func):
            return self._exact(func, bool(written))
        if written:
            return self._in_place(func, written)
        if base in _DECOMPOSED:
            return lambda args, kwargs: self._decomposed(func, args, kwargs)
        if func._can_decompose() and _is_composite(func):
            return lambda args, kwargs: self._composite(func, args, kwargs)
        return lambda args, kwargs: self._rest(func, args, kwargs)

    def _machine(self, func: Any, entry: Entry) -> Plan:
        """The entry's handler; the host, where it knows no rule for the arguments."""
        program, handler, name, packet = self._program, entry.handler, str(func), _name(func)
        add, scales = program.account.add, entry.name == "_amp_update_scale_.default"

        def run(args: Any, kwargs: Any) -> Any:
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
            add("machine", name, _elements(result))
            if scales:
                program.scale_updated()
            return result

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
        result = on_host(call, func, args, kwargs)
        self._program.account.add("host", str(func), _elements(result))
        return result

    def _decomposed(self, func: Any, args: Any, kwargs: Any) -> Any:
        from torch._decomp import decomposition_table

        with self:
            return decomposition_table[func](*args, **kwargs)

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

        def run(args: Any, kwargs: Any) -> Any:
            if not _has_float(args, kwargs):
                self._program.account.add("integer", str(func), 0)
                return func(*args, **kwargs)
            targets = [kwargs[n] for n in names] if is_out else [args[i] for i in written]
            rest = {k: v for k, v in kwargs.items() if k not in names} if is_out else kwargs
            results = compute(args, rest)
            for target, result in zip(
                targets, results if isinstance(results, tuple) else (results,), strict=True
            ):
                if is_out and target.shape != result.shape:
                    target.resize_(result.shape)
                self._store(target, result)
            return targets[0] if len(targets) == 1 else tuple(targets)

        return run

    def _no_functional(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not _has_float(args, kwargs):
            self._program.account.add("integer", str(func), 0)
            return func(*args, **kwargs)
        raise _refusal(func, self._program.call(_name(func)))

    def _listed(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self:
            return each(func, args, kwargs)

    def _fused(self, func: Any) -> Any:
        raise NotImplementedError(
            f"{func} at {user_line()} is a whole step of an optimiser in one kernel; use "
            "fused=False, whose operations run on the machine"
        )

    def _copy(self, target: torch.Tensor, source: torch.Tensor, *_: Any, **__: Any) -> Any:
        """target.copy_(source): a cast where the formats differ."""
        self._program.account.add("exact", "aten.copy_.default", 0)
        return self._store(target, source)

    def _store(self, target: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        """Copy what was computed into a tensor, which keeps its format."""
        memory = self._memory
        held = memory.format_of(target)
        given = memory.format_of(source)
        if held is given and held is not None:
            target.copy_(source)
            return target
        if given is None or not target.dtype.is_floating_point or target.dtype == torch.float64:
            target.copy_(source)
            if held not in (None, BINARY32) and target.dtype == torch.float32:
                _round_in_place(target, held)
            return target
        is_all = target.numel() * target.element_size() == target.untyped_storage().nbytes()
        if held is None:
            target.copy_(source)
            if is_all:
                memory.mark(target, given)
            return target
        if held != given:
            call = self._program.call("aten.copy_")
            array = call.device.cast(memory.read(source, given), held)
            source = memory.write(array, target.dtype)
        target.copy_(source)
        return target

    # Exact ----------------------------------------------------------------------------------

    def _exact(self, func: Any, writes: bool) -> Plan:
        """The operation as it is; results keep the format of what they were taken from."""
        memory, account, name = self._memory, self._program.account, str(func)
        constants = constants_of(func)

        def plain(args: Any, kwargs: Any) -> Any:
            account.add("exact", name, 0)
            return func(*args, **kwargs)

        def marked(args: Any, kwargs: Any) -> Any:
            account.add("exact", name, 0)
            flat = _flat(args, kwargs)
            formats = {memory.format_of(x) for x in flat if x.dtype == torch.float32}
            known = formats - {None}
            if constants and known and known != {BINARY32}:
                args, kwargs = self._rounded_constants(func, constants, args, kwargs)
            result = func(*args, **kwargs)
            if writes and flat:
                held = memory.format_of(flat[0])
                if held not in (None, BINARY32) and flat[0].dtype == torch.float32:
                    _round_in_place(flat[0], held)
            elif len(formats) == 1 and (fmt := next(iter(formats))) is not None:
                for each in result if isinstance(result, (tuple, list)) else (result,):
                    if isinstance(each, torch.Tensor):
                        memory.mark(each, fmt, any(map(memory.is_gradient, flat)))
            return result

        return plain if memory.is_plain else marked

    def _rounded_constants(self, func: Any, places: Any, args: Any, kwargs: Any) -> Any:
        """Numbers among the arguments, as constants of the format that is computed in."""
        call = self._program.call(_name(func))
        fmt = call.format_of(*_flat(args, kwargs))

        def constant(x: Any) -> Any:
            is_number = isinstance(x, (int, float)) and not isinstance(x, bool)
            return number_of(call.constant(x, fmt)) if is_number else x

        args = tuple(constant(x) if i in places else x for i, x in enumerate(args))
        return args, {k: constant(x) if k in places else x for k, x in kwargs.items()}


# Overloads --------------------------------------------------------------------------------------


def _name(func: Any) -> str:
    """The name of an operation without its overload."""
    return str(func).rpartition(".")[0]


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _is_composite(func: Any) -> bool:
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(func.has_kernel_for_dispatch_key(key))


def _functional(func: Any, written: list[int]) -> Any:
    """The overload without side effects that takes the other arguments, if there is one."""
    schema = func._schema
    base = schema.name.partition("::")[2]
    is_out = schema.arguments[written[0]].kwarg_only
    kept = [a for i, a in enumerate(schema.arguments) if not (is_out and i in written)]
    wanted = [(a.name, str(a.type)) for a in kept]
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
    known = func._schema.name.startswith("aten::")
    for x in _flat(args, kwargs):
        known = known and x.device.type == "cpu" and not x.is_sparse
    if not known or torch.Tag.nondeterministic_seeded in func.tags:
        raise _refusal(func, call)


def _refusal(func: Any, call: Call) -> NotImplementedError:
    return NotImplementedError(
        f"{func} in layer {call.layer!r} ({call.direction}), at {user_line()}, has no rule on the "
        "simulated machine, and nothing runs natively; compute it outside of the session, or write "
        "it with operations that docs/pytorch.md lists"
    )


# Arguments --------------------------------------------------------------------------------------


def _flat(args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors among arguments and in lists of them."""
    tensors = []
    for x in (*args, *kwargs.values()):
        if isinstance(x, torch.Tensor):
            tensors.append(x)
        elif isinstance(x, (list, tuple)):
            tensors.extend(each for each in x if isinstance(each, torch.Tensor))
    return tensors


def _has_float(args: Any, kwargs: Any) -> bool:
    for x in args:
        if isinstance(x, torch.Tensor):
            if _is_real(x):
                return True
        elif isinstance(x, (list, tuple)) and any(
            isinstance(each, torch.Tensor) and _is_real(each) for each in x
        ):
            return True
    return any(isinstance(x, torch.Tensor) and _is_real(x) for x in kwargs.values())


def _is_real(x: torch.Tensor) -> bool:
    """Whether a tensor has real or complex numbers; one on the meta device has none."""
    return bool((x.dtype.is_floating_point or x.dtype.is_complex) and not x.is_meta)


def _is_float(result: Any) -> bool:
    results = result if isinstance(result, (tuple, list)) else (result,)
    return any(isinstance(x, torch.Tensor) and _is_real(x) for x in results)


def _is_floating(result: Any) -> bool:
    results = result if isinstance(result, (tuple, list)) else (result,)
    return any(isinstance(x, torch.Tensor) and x.is_floating_point() for x in results)


def _elements(result: Any) -> int:
    if isinstance(result, torch.Tensor):
        return int(result.numel())
    results = result if isinstance(result, (tuple, list)) else (result,)
    return sum(x.numel() for x in results if isinstance(x, torch.Tensor))


def _round_in_place(x: torch.Tensor, fmt: Any) -> None:
    """Values of the host, to nearest, in a tensor that holds a format."""
    values = x.detach()
    values.copy_(torch.from_numpy(round_to(values.contiguous().numpy(), fmt)).float())
