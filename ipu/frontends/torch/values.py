"""Values: torch tensors as arrays of a device and back, exactly; which format a tensor holds.

float16, bfloat16 and float8 tensors hold their own format. A float32 tensor holds values of the
format that the policy chose when it was computed: its storage remembers which. A storage that
remembers none came from outside (data, initial values): its values are rounded to nearest when they
are read, as those of `Device.from_host`. Parameters are rounded once, in place, into the policy's
format of parameters.

Source    docs/semantics.md §2 and §3 (policies of front ends).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Generic, TypeVar
from weakref import ref

import numpy as np
import torch
from torch._C._functorch import (
    get_unwrapped,
    is_functorch_wrapped_tensor,
    peek_interpreter_stack,
)
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.parameter import UninitializedTensorMixin

from fpsim.array import Array
from fpsim.context import Context
from fpsim.convenience import round_to
from fpsim.records.formats import (
    BFLOAT16,
    BINARY16,
    BINARY32,
    E4M3FN,
    E5M2,
    F143,
    F152,
    Format,
)
from fpsim.records.types import Carrier
from ipu.machine.device import Device
from ipu.run.account import fit
from ipu.run.births.birth import Birth, Origins
from ipu.run.births.births import Births
from ipu.run.restoring import Alter

__all__ = [
    "EIGHTHS", "FORMATS", "FORMAT_MARK", "HALVES", "Memory", "TensorMap", "is_abstract", "is_lazy",
    "outside_transforms", "round_in_place", "stored", "tensors_of", "to_narrow", "widest",
]

#: Data types of 16 bits, which a way of a trial may replace.
HALVES: dict[torch.dtype, Format] = {torch.float16: BINARY16, torch.bfloat16: BFLOAT16}
#: Those of eight bits. float8_e8m0fnu holds scales: it is no format to compute in.
EIGHTHS: dict[torch.dtype, Format] = {
    torch.float8_e4m3fn: E4M3FN, torch.float8_e5m2: E5M2, torch.float8_e4m3fnuz: F143,
    torch.float8_e5m2fnuz: F152,
}
#: Formats of the data types that have one of their own.
FORMATS = HALVES | EIGHTHS

V = TypeVar("V")

#: Names of what a storage remembers; the first is that of its format.
FORMAT_MARK, _SAVED, _ORIGINS = "_fpsim_format", "_fpsim_saved", "_fpsim_origins"
_ROLE_IN_PRODUCTS = "_fpsim_dense"
#: Roles of memory in products of dense layers.
WEIGHT, ACTIVATION = "weight", "activation"
_NOTHING = (None, None, False)
#: Constants that are remembered; learning rates may change in every step.
_CONSTANTS = 4096


def widest(formats: Iterable[Format]) -> Format:
    """The narrowest format that holds the values of all of these.

    >>> print(widest([BINARY16, BFLOAT16]), widest([BINARY16]))
    binary32 binary16
    """
    (first, *others) = set(formats)
    return BINARY32 if others else first


def is_abstract(x: torch.Tensor) -> bool:
    """Whether a tensor is a shape without numbers: on the meta device, or a fake tensor.

    >>> is_abstract(torch.empty(2, device="meta")), is_abstract(torch.ones(2))
    (True, False)
    """
    return x.is_meta or type(x) is FakeTensor


@contextmanager
def outside_transforms() -> Iterator[None]:
    """Tensors inside are read as they are, whatever `torch.func` or a trace is about.

    A trace holds what the program computes; rounding its parameters on entry is no part of it.
    """
    with ExitStack() as stack:
        if peek_interpreter_stack() is not None:
            stack.enter_context(temporarily_clear_interpreter_stack())
        if torch.jit.is_tracing():
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore", torch.jit.TracerWarning)
        yield


def is_lazy(x: torch.Tensor) -> bool:
    """Whether a tensor is a parameter that its lazy module has not made yet."""
    return isinstance(x, UninitializedTensorMixin)


def stored(x: torch.Tensor) -> torch.Tensor | None:
    """The tensor with the numbers, under the wrappers of `torch.func`; None where there are none.

    Parameters that a lazy module has not made yet, and tensors of shapes alone, have none.

    >>> torch.func.vmap(lambda x: x * (stored(x).ndim))(torch.ones(3))
    tensor([1., 1., 1.])
    """
    if is_lazy(x):
        return None
    while is_functorch_wrapped_tensor(x):
        x = get_unwrapped(x)
    return None if is_abstract(x) else x


class TensorMap(Generic[V]):
    """Values by tensor, by identity; those of tensors that are gone do not count.

    >>> numbers, x = TensorMap[int](), torch.ones(1)
    >>> numbers[x] = 3
    >>> x in numbers, numbers.get(x, 0), numbers.get(torch.ones(1), 0)
    (True, 3, 0)
    """

    def __init__(self) -> None:
        self._rows: dict[int, tuple[ref[torch.Tensor], V]] = {}
        #: With so many rows those of tensors that are gone are dropped.
        self._limit = 64

    def get(self, x: Any, default: V) -> V:
        """The value of a tensor."""
        row = self._rows.get(id(x))
        return row[1] if row is not None and row[0]() is x else default

    def __contains__(self, x: torch.Tensor) -> bool:
        row = self._rows.get(id(x))
        return row is not None and row[0]() is x

    def __setitem__(self, x: torch.Tensor, value: V) -> None:
        self._rows[id(x)] = ref(x), value
        if len(self._rows) > self._limit:
            self._rows = {i: row for i, row in self._rows.items() if row[0]() is not None}
            self._limit = 64 + 2 * len(self._rows)

    def clear(self) -> list[V]:
        """Forget all; the values there were."""
        values = [value for _, value in self._rows.values()]
        self._rows.clear()
        return values


class Memory:
    """The formats of tensors in one session.

    device      whose arrays the tensors become.
    is_plain    every policy is binary32: float32 tensors are what they are, and nothing is marked.
    """

    def __init__(
        self, device: Device, *, is_plain: bool, replaced: Mapping[float, float] | None = None
    ) -> None:
        self.device = device
        #: Constants of the program, with those in their place.
        self._replaced = replaced or {}
        self.is_plain = is_plain
        self._contexts: dict[int, Context] = {}
        self._constants: dict[tuple[type, float, int], tuple[Array, str]] = {}
        self._formats: list[Format] = []  # keeps them alive, so that no other gets their identity
        #: Called with the result of each operation and its operands.
        self.watch: Callable[[Array, Sequence[Array]], None] | None = None
        #: Arrays that the operation that runs now has read.
        self.operands: list[Array] = []
        #: Of the run, where it counts.
        self.births: Births | None = None
        #: Formats that backward passes computed in since the last step.
        self.of_passes: set[Format] = set()
        #: What a diagnosis does to results of the operation that runs now; None: nothing.
        self.alter: Alter | None = None
        #: A gradient scaler multiplies a loss.
        self.is_scaling = False
        #: The operation that runs now belongs to a backward pass.
        self.in_pass = False

    # Marks ----------------------------------------------------------------------------------

    def format_of(self, x: torch.Tensor) -> Format | None:
        """The format that a tensor holds; None: a float32 tensor from outside, and other types."""
        if x.dtype is not torch.float32:
            return FORMATS.get(x.dtype)
        if self.is_plain:
            return BINARY32
        session, fmt, _ = getattr(x.untyped_storage(), FORMAT_MARK, _NOTHING)
        return fmt if session is self else None

    def is_gradient(self, x: torch.Tensor) -> bool:
        """Whether a float32 tensor was computed in a backward pass of this session."""
        session, _, is_gradient = getattr(x.untyped_storage(), FORMAT_MARK, _NOTHING)
        return bool(session is self and is_gradient)

    def is_root(self, x: torch.Tensor) -> bool:
        """Whether a tensor repeats one number: the gradient of a loss, in binary32."""
        if x.dtype is not torch.float32 or self.is_plain:
            return False
        storage = x.untyped_storage()
        session, fmt, is_gradient = getattr(storage, FORMAT_MARK, _NOTHING)
        return bool(session is self and is_gradient and fmt == BINARY32) and storage.nbytes() == 4

    def mark(self, x: torch.Tensor, fmt: Format, is_gradient: bool = False) -> None:
        """A float32 tensor holds this format from now on."""
        if not self.is_plain and x.dtype == torch.float32:
            setattr(x.untyped_storage(), FORMAT_MARK, (self, fmt, is_gradient))

    def enter(self, parameter: torch.Tensor, fmt: Format, *, is_first: bool = False) -> None:
        """Round a parameter from outside, in place and to nearest, as copied to the machine.

        is_first    also one that the program computed, in whatever format that was.
        """
        if is_abstract(parameter):
            return
        held = self.format_of(parameter)
        if parameter.dtype != torch.float32 or held == fmt or not (held is None or is_first):
            return
        values = parameter.detach()
        rounded = np.asarray(round_to(values.numpy(), fmt), np.float32)
        values.numpy()[...] = rounded
        self.mark(parameter, fmt)

    def cast_wide(self, x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """A float64 tensor in a data type of eight bits: a cast of the machine.

        Rounding  once, by the device.
        Flags     of that rounding.
        """
        values = x.detach().contiguous().numpy()
        return self.write(self.device.context(EIGHTHS[dtype]).array(values), dtype)

    # Layout ---------------------------------------------------------------------------------

    def laid_as_operands(self, result: Any, operands: Iterable[Any]) -> Any:
        """An elementwise result with the strides of the first operand of its shape, as in torch.

        Programs call `view` on what torch lays out so.
        """
        for x in operands:
            if isinstance(x, torch.Tensor) and x.shape == result.shape:
                return result if x.is_contiguous() else self._laid(result, torch.empty_like(x))
        return result

    def laid_as_images(self, results: Any, operands: Iterable[Any]) -> Any:
        """Images with their channels last, where those of an operand are."""
        first, *rest = results if isinstance(results, tuple) else (results,)
        if first.ndim != 4 or not any(map(_has_channels_last, operands)):
            return results
        like = torch.empty_like(first, memory_format=torch.channels_last)
        first = self._laid(first, like)
        return (first, *rest) if rest else first

    def _laid(self, values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        laid = torch.empty_strided(like.shape, like.stride(), dtype=values.dtype).copy_(values)
        if self.device.notes is not None:
            self.device.notes.note(
                (values.numpy(),), (laid.numpy(),), lambda *_: laid.copy_(values) is laid
            )
        mark = getattr(values.untyped_storage(), FORMAT_MARK, _NOTHING)
        setattr(laid.untyped_storage(), FORMAT_MARK, mark)
        self.moved((values,), laid)
        return laid

    # Roles in products of dense layers ---------------------------------------------------------

    def give_role(self, x: torch.Tensor, role: str) -> None:
        """The memory of x is a weight, or what one was multiplied with; a weight stays one."""
        if self.role_of(x) != WEIGHT:
            setattr(x.untyped_storage(), _ROLE_IN_PRODUCTS, (self, role))

    def role_of(self, x: torch.Tensor) -> str:
        """The role of the memory of x in this session; "" for none."""
        session, role = getattr(x.untyped_storage(), _ROLE_IN_PRODUCTS, (None, ""))
        return str(role) if session is self else ""

    # What a forward operation leaves for its backward ------------------------------------------

    def save(self, x: torch.Tensor, saved: Any) -> None:
        """Keep this with the memory of x, as long as that lives."""
        setattr(x.untyped_storage(), _SAVED, (self, saved))

    def saved(self, x: torch.Tensor) -> Any:
        """What was kept with the memory of x in this session, or None."""
        session, saved = getattr(x.untyped_storage(), _SAVED, (None, None))
        return saved if session is self else None

    # Births -----------------------------------------------------------------------------------

    def origins(self, x: torch.Tensor) -> Origins:
        """The births that the elements of a tensor come from."""
        session, origins = getattr(x.untyped_storage(), _ORIGINS, (None, {}))
        return origins if session is self else {}

    def moved(
        self, sources: Iterable[torch.Tensor], target: Any, constants: Iterable[Array] = ()
    ) -> None:
        """A tensor, or each of several, holds numbers of others and of the program now."""
        if self.births is None or not self.births.has_any:
            return
        origins: dict[str, Birth] = {}
        for x in sources:
            origins |= self.origins(x)
        for number in constants:
            origins |= self.births.of(number)
        for x in target if isinstance(target, (tuple, list)) else (target,):
            if isinstance(x, torch.Tensor) and (origins or self.origins(x)):
                self._remember(x, origins)

    def stored(self, array: Array, target: torch.Tensor) -> Origins:
        """A tensor holds the numbers of an array now; what they come from."""
        if self.births is None or not self.births.has_any:
            return {}
        origins = self.births.of(array)
        self._remember(target, origins)
        return origins

    def _remember(self, x: torch.Tensor, origins: Origins) -> None:
        """Elements of a tensor come from these births; others of its memory stay as they are."""
        is_part = x.numel() * x.element_size() < x.untyped_storage().nbytes()
        before = self.origins(x) if is_part else {}
        setattr(x.untyped_storage(), _ORIGINS, (self, {**before, **origins}))

    # Arrays ---------------------------------------------------------------------------------

    def read(self, x: torch.Tensor, fmt: Format) -> Array:
        """A tensor as an array in this format; from another one by a cast of the device."""
        held = self.format_of(x)
        if held is None:
            array = self.device.from_host(_host_values(x), fmt)
        else:
            values = x.detach() if x.requires_grad else x
            if x.dtype is not torch.float32:
                values = values.float()
            context = self._contexts.get(id(held)) or self.context(held)
            array = Array(values.numpy(), context)
            if held is not fmt and held != fmt:
                array = self.cast(array, fmt)
        if self.watch is not None:
            self.operands.append(array)
            if self.births is not None and (origins := self.origins(x)):
                self.births.note(array, {**self.births.of(array), **origins})
        return array

    def cast(self, array: Array, fmt: Format) -> Array:
        """An operand in another format."""
        if self.in_pass:
            self.of_passes.add(fmt)
        return self.device.cast(array, fmt)

    def context(self, fmt: Format) -> Context:
        """The device's context for a format; formats are compared by identity first."""
        context = self._contexts.get(id(fmt))
        if context is None:
            context = self.device.context(fmt)
            self._contexts[id(fmt)] = context
            self._formats.append(fmt)
        return context

    def constant(self, value: float, fmt: Format) -> tuple[Array, str]:
        """A number in a format, to nearest, and how it changed ("" where it fits)."""
        key = type(value), value, id(fmt)
        entry = self._constants.get(key) if value else None
        if entry is None:
            value = self._replaced.get(value, value)
            rounded = self.context(fmt).constant(value)
            entry = rounded, fit(value, float(rounded.carrier), fmt)
            # A constant that overflows depends on the control register of now.
            if value and entry[1] != "overflow" and len(self._constants) < _CONSTANTS:
                self._constants[key] = entry
        return entry

    def is_constant(self, carrier: Carrier) -> bool:
        """Whether this is the carrier of a constant of the program."""
        return any(rounded.carrier is carrier for rounded, _ in self._constants.values())

    def write(self, array: Array, dtype: torch.dtype, is_gradient: bool = False) -> torch.Tensor:
        """An array as a new tensor; of a data type with a format, rounded into that format."""
        if dtype is not torch.float32 and dtype in FORMATS and array.format != FORMATS[dtype]:
            array = self.device.cast(array, FORMATS[dtype])
        if self.in_pass:
            self.of_passes.add(array.format)
        if self.alter is not None:
            array = Array(self.alter(array.carrier, array.format), array.context)
        if self.watch is not None:
            self.watch(array, self.operands)
        carrier = array.carrier
        flags = carrier.flags
        if not (flags.c_contiguous and flags.owndata and flags.writeable):
            carrier = np.array(carrier, order="C")
            if self.device.notes is not None:
                self.device.notes.note(
                    (array.carrier,), (carrier,), partial(_copied, carrier, array.carrier)
                )
        result = torch.from_numpy(carrier)
        if dtype is not torch.float32:
            result = result.to(dtype)
            if self.device.notes is not None:
                self.device.notes.refuse()
        if self.births is not None and (origins := self.births.of(array)):
            setattr(result.untyped_storage(), _ORIGINS, (self, origins))
        if dtype is not torch.float32:
            return result
        if not self.is_plain:
            self.mark(result, array.format, is_gradient)
        return result


def _copied(target: Carrier, source: Carrier, *_: object) -> bool:
    target[...] = source
    return True


def _has_channels_last(x: Any) -> bool:
    return (
        isinstance(x, torch.Tensor)
        and x.ndim == 4
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def tensors_of(args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors among arguments and in lists of them."""
    tensors = []
    # No generator, which is a call for each of its items: every operation asks.
    for x in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(x, torch.Tensor):
            tensors.append(x)
        elif isinstance(x, (list, tuple)):
            tensors += [item for item in x if isinstance(item, torch.Tensor)]
    return tensors


def round_in_place(x: torch.Tensor, fmt: Format) -> None:
    """Values of the host, to nearest, in a tensor that holds a format."""
    values = x.detach()
    rounded = np.asarray(round_to(values.contiguous().numpy(), fmt), np.float32)
    values.copy_(torch.from_numpy(rounded))


def to_narrow(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A float64 tensor in a narrow data type, rounded once; torch rounds to float32 between.

    >>> x = torch.tensor([1 + 2.0**-11 + 2.0**-40], dtype=torch.float64)
    >>> to_narrow(x, torch.float16).item() > 1, x.float().half().item() > 1
    (True, False)
    """
    rounded = round_to(x.detach().contiguous().numpy(), FORMATS[dtype])
    return torch.from_numpy(np.asarray(rounded, np.float32)).to(dtype)


def _host_values(x: torch.Tensor) -> Any:
    """Integers, truth values and floats as numpy has them."""
    return x.detach().numpy()
