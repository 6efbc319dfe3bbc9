"""The processor's floating-point status: what its bits mean, and how kernels read and write it.

A status word holds modes and flags. On an x86 it is MXCSR. An ARM of 64 bits has two registers,
which stand in one word here: FPCR with the modes in the upper half, FPSR with the flags in the
lower one. On any other processor nothing is read or written, and HAS_STATUS is false.

The two differ in what they find. An x86 finds a tiny result after rounding, an ARM before it. An
ARM that flushes does so before rounding, operands too, and does not call that inexact; no policy
of formats is like it, so kernels never ask for it.

Source    Intel SDM vol. 1 §10.2.3 (MXCSR), §4.9.1.5; Arm Architecture Reference Manual for
          A-profile (DDI 0487), §A1.5 and the registers FPCR and FPSR.
"""

from __future__ import annotations

import platform
from typing import Any, NamedTuple

from llvmlite import binding, ir
from numba.core import cgutils

__all__ = [
    "FLAGS", "FLAG_BITS", "FLUSHING", "HAS_STATUS", "IS_ARM", "TININESS", "TO_NEAREST",
    "TOWARD_MINUS", "TOWARD_PLUS", "TOWARD_ZERO", "USUAL", "fence", "load_flags", "load_status",
    "room_for_status", "store_flags", "store_status",
]

_MACHINE = platform.machine().lower()
#: Whether the processor is an ARM of 64 bits.
IS_ARM = _MACHINE in ("aarch64", "arm64")
_IS_X86 = _MACHINE in ("x86_64", "amd64")

#: Whether the processor has such a word.
HAS_STATUS = _IS_X86 or IS_ARM


class _Layout(NamedTuple):
    """What stands where in the word.

    usual        no exception traps, to nearest even, subnormals are numbers, no flag is up.
    flags        all that stay up once they are raised, also those that no standard names.
    flag_bits    places of inexact, underflow, overflow, division by zero, invalid.
    directions   modes to nearest even, down, up, toward zero.
    flushing     modes of each policy for subnormal numbers that the processor follows.
    tininess     when it looks whether a result is tiny.
    """

    usual: int
    flags: int
    flag_bits: tuple[int, int, int, int, int]
    directions: tuple[int, int, int, int]
    flushing: dict[str, int]
    tininess: str


_FLUSH_RESULTS, _FLUSH_OPERANDS = 1 << 15, 1 << 6
_X86 = _Layout(
    usual=0x1F80, flags=0x3F, flag_bits=(5, 4, 3, 2, 0),
    directions=(0, 1 << 13, 2 << 13, 3 << 13),
    flushing={
        "keep": 0, "flush_results": _FLUSH_RESULTS,
        "flush_both": _FLUSH_RESULTS | _FLUSH_OPERANDS,
    },
    tininess="after",
)
#: Of the flags one more tells of flushed operands (IDC), one of saturated integers (QC).
_ARM = _Layout(
    usual=0, flags=0x1F | 1 << 7 | 1 << 27, flag_bits=(4, 3, 2, 1, 0),
    directions=(0, 2 << 54, 1 << 54, 3 << 54), flushing={"keep": 0}, tininess="before",
)
_HERE = _ARM if IS_ARM else _X86

#: The word under which kernels run, all its flags, and the places of those that IEEE 754 names,
#: from INEXACT up to INVALID.
USUAL, FLAGS, FLAG_BITS = _HERE.usual, _HERE.flags, _HERE.flag_bits
#: Modes beside the usual word.
TO_NEAREST, TOWARD_MINUS, TOWARD_PLUS, TOWARD_ZERO = _HERE.directions
#: Modes of the policies for subnormal numbers that the processor follows.
FLUSHING = _HERE.flushing
#: When the processor looks whether a result is tiny: before it is rounded, or after.
TININESS = _HERE.tininess

_WORD, _HALF = ir.IntType(64), ir.IntType(32)

if IS_ARM:
    binding.initialize_native_asmparser()


def fence(builder: Any) -> None:
    """Loads and stores, and the arithmetic between them, stay on their side; costs nothing."""
    builder.fence("seq_cst", "singlethread")


def store_status(builder: Any) -> Any:
    """Emit a read of the status word; returns 64 bits."""
    if IS_ARM:
        modes = builder.shl(_read_arm(builder, "fpcr"), ir.Constant(_WORD, 32))
        return builder.or_(modes, _read_arm(builder, "fpsr"))
    word = room_for_status(builder)
    _call_x86(builder, "stmxcsr", word)
    return builder.zext(builder.load(word), _WORD)


def room_for_status(builder: Any) -> Any:
    """Memory that `load_status` goes through."""
    return cgutils.alloca_once(builder, _HALF)


def load_status(builder: Any, bits: Any, room: Any = None) -> None:
    """Emit a write of the status word.

    room   from `room_for_status`, where the builder stands before the end of a block: to make room
           it goes elsewhere and comes back to the end.
    """
    if IS_ARM:
        _write_arm(builder, "fpcr", builder.lshr(bits, ir.Constant(_WORD, 32)))
        _write_arm(builder, "fpsr", builder.and_(bits, ir.Constant(_WORD, 0xFFFFFFFF)))
        return
    word = room_for_status(builder) if room is None else room
    builder.store(builder.trunc(bits, _HALF), word)
    _call_x86(builder, "ldmxcsr", word)


def store_flags(builder: Any) -> Any:
    """Emit a read of the flags, in their places; what stands elsewhere is for `load_flags`."""
    return _read_arm(builder, "fpsr") if IS_ARM else store_status(builder)


def load_flags(builder: Any, bits: Any) -> None:
    """Emit a write of the flags alone, in the bits that `store_flags` gave."""
    if IS_ARM:
        _write_arm(builder, "fpsr", bits)
    else:
        load_status(builder, bits)


def _call_x86(builder: Any, name: str, word: Any) -> None:
    address = builder.bitcast(word, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [address.type])
    name = f"llvm.x86.sse.{name}"
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [address])


def _read_arm(builder: Any, name: str) -> Any:
    """As text of the assembler, since LLVM has names for all of this only from some version on.

    It counts as a use of the memory, so that stores of results stay before it.
    """
    kind = ir.FunctionType(_WORD, [])
    return builder.asm(kind, f"mrs $0, {name}", "=r,~{memory}", [], side_effect=True)


def _write_arm(builder: Any, name: str, bits: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_WORD])
    builder.asm(kind, f"msr {name}, $0", "r,~{memory}", [bits], side_effect=True)
