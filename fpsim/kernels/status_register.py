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
from typing import Any, ClassVar, Protocol

from llvmlite import binding, ir
from numba.core import cgutils

__all__ = [
    "ArmStatus", "FLAGS", "FLAG_BITS", "FLUSHING", "HAS_STATUS", "IS_ARM", "TININESS",
    "TO_NEAREST", "TOWARD_MINUS", "TOWARD_PLUS", "TOWARD_ZERO", "USUAL", "fence", "load_flags",
    "load_status", "room_for_status", "store_flags", "store_status",
]

_MACHINE = platform.machine().lower()
#: Whether the processor is an ARM of 64 bits.
IS_ARM = _MACHINE in ("aarch64", "arm64")
_IS_X86 = _MACHINE in ("x86_64", "amd64")

#: Whether the processor has such a word.
HAS_STATUS = _IS_X86 or IS_ARM


_WORD, _HALF = ir.IntType(64), ir.IntType(32)


class _StatusWord(Protocol):
    """A word of 64 bits: what stands where, and instructions that read and write it.

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
    flushing: ClassVar[dict[str, int]]
    tininess: str

    def room(self, builder: Any) -> Any:
        """Memory that `load` goes through."""

    def store(self, builder: Any) -> Any:
        """Emit a read of the word."""

    def load(self, builder: Any, bits: Any, room: Any) -> None:
        """Emit a write of the word."""

    def store_flags(self, builder: Any) -> Any:
        """Emit a read of the flags, in their places; the rest is for `load_flags`."""

    def load_flags(self, builder: Any, bits: Any) -> None:
        """Emit a write of the flags alone."""


class _X86Status:
    """MXCSR, in the lower half of the word."""

    usual, flags, flag_bits, tininess = 0x1F80, 0x3F, (5, 4, 3, 2, 0), "after"
    directions = 0, 1 << 13, 2 << 13, 3 << 13
    flushing: ClassVar[dict[str, int]] = {
        "keep": 0, "flush_results": 1 << 15, "flush_both": 1 << 15 | 1 << 6,
    }

    def room(self, builder: Any) -> Any:
        return cgutils.alloca_once(builder, _HALF)

    def store(self, builder: Any) -> Any:
        word = self.room(builder)
        self._call(builder, "stmxcsr", word)
        return builder.zext(builder.load(word), _WORD)

    def load(self, builder: Any, bits: Any, room: Any) -> None:
        builder.store(builder.trunc(bits, _HALF), room)
        self._call(builder, "ldmxcsr", room)

    def store_flags(self, builder: Any) -> Any:
        return self.store(builder)

    def load_flags(self, builder: Any, bits: Any) -> None:
        self.load(builder, bits, self.room(builder))

    def _call(self, builder: Any, name: str, word: Any) -> None:
        address = builder.bitcast(word, ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [address.type])
        name = f"llvm.x86.sse.{name}"
        builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [address])


class ArmStatus:
    """FPCR and FPSR. Of the flags one more tells of flushed operands, one of saturated integers.

    They are reached by text for the assembler, since LLVM has names for all of this only from some
    version on. It counts as a use of the memory, so that stores of results stay before it.
    """

    usual, flags, flag_bits, tininess = 0, 0x1F | 1 << 7 | 1 << 27, (4, 3, 2, 1, 0), "before"
    directions = 0, 2 << 54, 1 << 54, 3 << 54
    flushing: ClassVar[dict[str, int]] = {"keep": 0}

    def room(self, builder: Any) -> Any:
        return None

    def store(self, builder: Any) -> Any:
        modes = builder.shl(self._read(builder, "fpcr"), ir.Constant(_WORD, 32))
        return builder.or_(modes, self._read(builder, "fpsr"))

    def load(self, builder: Any, bits: Any, room: Any) -> None:
        self._write(builder, "fpcr", builder.lshr(bits, ir.Constant(_WORD, 32)))
        self._write(builder, "fpsr", builder.and_(bits, ir.Constant(_WORD, 0xFFFFFFFF)))

    def store_flags(self, builder: Any) -> Any:
        return self._read(builder, "fpsr")

    def load_flags(self, builder: Any, bits: Any) -> None:
        self._write(builder, "fpsr", bits)

    def _read(self, builder: Any, name: str) -> Any:
        kind = ir.FunctionType(_WORD, [])
        return builder.asm(kind, f"mrs $0, {name}", "=r,~{memory}", [], side_effect=True)

    def _write(self, builder: Any, name: str, bits: Any) -> None:
        kind = ir.FunctionType(ir.VoidType(), [_WORD])
        builder.asm(kind, f"msr {name}, $0", "r,~{memory}", [bits], side_effect=True)


if IS_ARM:
    binding.initialize_native_asmparser()
_HERE: _StatusWord = ArmStatus() if IS_ARM else _X86Status()

#: The word under which kernels run, all its flags, and the places of those that IEEE 754 names,
#: from INEXACT up to INVALID.
USUAL, FLAGS, FLAG_BITS = _HERE.usual, _HERE.flags, _HERE.flag_bits
#: Modes beside the usual word.
TO_NEAREST, TOWARD_MINUS, TOWARD_PLUS, TOWARD_ZERO = _HERE.directions
#: Modes of the policies for subnormal numbers that the processor follows.
FLUSHING = _HERE.flushing
#: When the processor looks whether a result is tiny: before it is rounded, or after.
TININESS = _HERE.tininess

#: See `_StatusWord`. Room is made ahead of a builder that stands before the end of a block: making
#: it moves the builder to that end.
room_for_status, store_status, load_status = _HERE.room, _HERE.store, _HERE.load
store_flags, load_flags = _HERE.store_flags, _HERE.load_flags


def fence(builder: Any) -> None:
    """Loads and stores, and the arithmetic between them, stay on their side; costs nothing."""
    builder.fence("seq_cst", "singlethread")
