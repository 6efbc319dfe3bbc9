"""What the compiler makes of reads and writes of an ARM's status (law).

LLVM does not know that arithmetic reads modes and raises flags: loads and stores must keep it
between the writes and reads. The order of instructions is that of optimised IR on any machine, and
of the assembly on an ARM.
"""

from __future__ import annotations

import re

import pytest
from llvmlite import binding, ir

from fpsim.kernels.status_register import IS_ARM, ArmStatus, fence

TRIPLE, LAYOUT = "aarch64-unknown-linux-gnu", "e-m:e-i8:8:32-i16:16:32-i64:64-i128:128-n32:64-S128"
WORD, PAIR = ir.IntType(64), ir.VectorType(ir.DoubleType(), 2)
ARM = ArmStatus()

#: Instructions whose order counts, in IR and as an ARM spells them.
STEPS = {
    "ir": {"load": "load", "store": "store", "fadd": "fadd", "fmul": "fmul", "ret": "ret"},
    "assembly": {"ldr": "load", "ldp": "load", "str": "store", "fadd": "fadd", "fmul": "fmul",
                 "ret": "ret"},
}


def texts(emit) -> dict[str, str]:
    """A function of three pointers (x, y, out), optimised: its IR, and on an ARM its assembly."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        target = binding.Target.from_triple(TRIPLE)
    except RuntimeError as error:
        pytest.skip(f"this LLVM compiles for no aarch64: {error}")
    source = ir.Module(name="status")
    source.triple, source.data_layout = TRIPLE, LAYOUT
    kind = ir.FunctionType(WORD, [PAIR.as_pointer()] * 3)
    builder = ir.IRBuilder(ir.Function(source, kind, "user").append_basic_block())
    builder.ret(emit(builder, *builder.function.args))
    parsed = binding.parse_assembly(str(source))
    machine = target.create_target_machine(cpu="generic", features="+neon,+fp-armv8", opt=3)
    tuning = binding.create_pipeline_tuning_options(speed_level=3)
    passes = binding.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(parsed, passes)
    texts = {"ir": str(parsed)}
    # Text for the assembler is only taken where LLVM has the assembler of the processor at hand.
    return texts | ({"assembly": machine.emit_assembly(parsed)} if IS_ARM else {})


def orders(emit) -> list[list[str]]:
    """The steps of each text in their order; loads beside each other count as one."""
    results = []
    for kind, text in texts(emit).items():
        steps: list[str] = []
        for line in text.splitlines():
            status = re.search(r"(mrs|msr)\W.*?(fpcr|fpsr)", line, re.I)
            words = [*re.findall(r"[a-z]+", line.split("=")[-1]), ""]
            step = " ".join(status.groups()).lower() if status else STEPS[kind].get(words[0], "")
            if step and (step, steps[-1:]) != ("load", ["load"]):
                steps.append(step)
        results.append(steps)
    return results


def test_arithmetic_stays_between_the_lowering_and_the_reading_of_flags():
    def emit(builder, x, y, out):
        ARM.load_flags(builder, ir.Constant(WORD, 0))
        builder.store(builder.fadd(builder.load(x), builder.load(y)), out)
        return ARM.store_flags(builder)

    for steps in orders(emit):
        assert steps == ["msr fpsr", "load", "fadd", "store", "mrs fpsr", "ret"]


def test_arithmetic_stays_between_two_settings_of_the_modes():
    def emit(builder, x, y, out):
        before = ARM.store(builder)
        ARM.load(builder, ir.Constant(WORD, 1 << 54), None)
        fence(builder)
        builder.store(builder.fmul(builder.load(x), builder.load(y)), out)
        fence(builder)
        ARM.load(builder, before, None)
        return before

    for steps in orders(emit):
        inside = steps[steps.index("msr fpsr") + 1 : steps.index("store") + 1]
        assert inside == ["load", "fmul", "store"]
        assert sorted(steps[:4]) == ["mrs fpcr", "mrs fpsr", "msr fpcr", "msr fpsr"]
        assert sorted(steps[-3:]) == ["msr fpcr", "msr fpsr", "ret"]


def test_a_product_and_a_sum_are_not_fused_unless_they_are_asked_to_be():
    def emit(builder, x, y, out):
        product = builder.fmul(builder.load(x), builder.load(y))
        builder.store(builder.fadd(product, builder.load(out)), out)
        return ir.Constant(WORD, 0)

    for steps in orders(emit):
        assert [step for step in steps if step.startswith("f")] == ["fmul", "fadd"]
