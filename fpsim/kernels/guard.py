"""The processor's floating-point status register, as kernels find it and as they leave it.

Another library may have set flush-to-zero, denormals-are-zero, a directed rounding mode or trapped
exceptions in the thread (torch.set_flush_denormal, code compiled with -ffast-math). A kernel runs
under the usual setting and restores at its exit what it met at its entry, modes and flags. Two
instructions at entry and one at exit do it, where the processor is an x86; elsewhere kernels take
the setting as it is.

Source    Intel SDM vol. 1 §10.2.3 (MXCSR).
"""

from __future__ import annotations

import gc
import platform
from types import CodeType
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NativeLowering, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes

__all__ = [
    "HAS_STATUS", "InlineCompiler", "KernelCompiler", "USUAL", "load_status", "store_status",
]

#: Whether the processor has this register.
HAS_STATUS = platform.machine().lower() in ("x86_64", "amd64")

#: No exception traps, to nearest even, subnormals are numbers, no flag is up.
USUAL = 0x1F80

_WORD = ir.IntType(32)


def _call(builder: Any, name: str, word: Any) -> None:
    address = builder.bitcast(word, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [address.type])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [address])


def store_status(builder: Any) -> Any:
    """Emit a read of the register; returns its 32 bits."""
    word = cgutils.alloca_once(builder, _WORD)
    _call(builder, "llvm.x86.sse.stmxcsr", word)
    return builder.load(word)


def load_status(builder: Any, bits: Any) -> None:
    """Emit a write of the register."""
    word = cgutils.alloca_once(builder, _WORD)
    builder.store(bits, word)
    _call(builder, "llvm.x86.sse.ldmxcsr", word)


class _Lower(Lower):
    """Lowering of a kernel: the status register is set at its entry, put back at every exit."""

    def pre_lower(self) -> None:
        super().pre_lower()
        if HAS_STATUS:
            self._before = cgutils.alloca_once(self.builder, _WORD)
            _call(self.builder, "llvm.x86.sse.stmxcsr", self._before)
            load_status(self.builder, ir.Constant(_WORD, USUAL))
            self._fence()

    def post_lower(self) -> None:
        if HAS_STATUS:
            for block in self.function.blocks:
                if isinstance(block.terminator, ir.Ret):
                    self.builder.position_before(block.terminator)
                    self._fence()
                    _call(self.builder, "llvm.x86.sse.ldmxcsr", self._before)
        super().post_lower()

    def _fence(self) -> None:
        """Loads and stores, and the arithmetic between them, stay on their side; costs nothing."""
        self.builder.fence("seq_cst", "singlethread")


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(BaseNativeLowering):
    _name = "kernel_lowering"

    @property
    def lowering_class(self) -> Any:
        return _Lower


class InlineCompiler(CompilerBase):
    """Numba's compiler without the passes that leave every kernel as it is.

    No kernel has an array expression, which is what the rewrites after typing look for; functions
    within a function are looked for where there is one. The two took one twentieth of the time of a
    compilation.
    """

    def define_pipelines(self) -> list[Any]:
        manager = DefaultPassBuilder.define_nopython_pipeline(self.state)
        unneeded = {NopythonRewrites}
        if not any(isinstance(value, CodeType) for value in self.state.func_id.code.co_consts):
            unneeded.add(InlineClosureLikes)
        manager.passes = [
            (self._replacement(kind), text) for kind, text in manager.passes if kind not in unneeded
        ]
        manager.finalize()
        return [manager]

    def _replacement(self, kind: type) -> type:
        """The pass that runs in the place of this one."""
        return kind


class KernelCompiler(InlineCompiler):
    """That compiler with this lowering, while the collector of garbage rests.

    Nearly all that the compiler makes lives until it ends: 7 % of its time and more, by the size of
    the process, went into looking through it. Numba compiles one kernel at a time, under a lock.
    """

    def compile_extra(self, func: Any) -> Any:
        collects = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(func)
        finally:
            if collects:
                gc.enable()

    def _replacement(self, kind: type) -> type:
        return _Lowering if kind is NativeLowering else kind
