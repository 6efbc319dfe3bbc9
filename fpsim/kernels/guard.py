"""The processor's floating-point status register, as kernels find it and as they leave it.

Another library may have set flush-to-zero, denormals-are-zero, a directed rounding mode or trapped
exceptions in the thread (torch.set_flush_denormal, code compiled with -ffast-math). A kernel runs
under the usual setting and restores at its exit what it met at its entry, modes and flags. A few
instructions at entry and exit do it, where the processor's register is known
(`fpsim.kernels.status_register`); elsewhere kernels take the setting as it is.
"""

from __future__ import annotations

import gc
from types import CodeType
from typing import Any

from llvmlite import ir
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NativeLowering, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes

from fpsim.kernels.status_register import (
    HAS_STATUS,
    USUAL,
    fence,
    load_status,
    room_for_status,
    store_status,
)

__all__ = ["InlineCompiler", "KernelCompiler"]


class _Lower(Lower):
    """Lowering of a kernel: the status register is set at its entry, put back at every exit."""

    def pre_lower(self) -> None:
        super().pre_lower()
        if HAS_STATUS:
            self._room, self._before = room_for_status(self.builder), store_status(self.builder)
            load_status(self.builder, ir.Constant(ir.IntType(64), USUAL), self._room)
            fence(self.builder)

    def post_lower(self) -> None:
        if HAS_STATUS:
            for block in self.function.blocks:
                if isinstance(block.terminator, ir.Ret):
                    self.builder.position_before(block.terminator)
                    fence(self.builder)
                    load_status(self.builder, self._before, self._room)
        super().post_lower()


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
