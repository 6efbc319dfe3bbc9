"""A step of the elementwise kernels as terms: operands in, bits of the result and flags out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, NamedTuple

from numba.core import types

from fpsim.elementwise.apply import variant
from fpsim.judge.proofs.numpy_terms import functions_of
from fpsim.judge.proofs.replay import LaneValue, TermBuilder
from fpsim.judge.proofs.terms import Word, choose
from fpsim.kernels.elementwise import step
from fpsim.kernels.elementwise.loop import WORDS_GIVEN, LoopVariant
from fpsim.kernels.elementwise.step import FLAGS_EACH, no_events, summary
from fpsim.kernels.lanes.formula import Term
from fpsim.kernels.rounding.rule import RoundingRule
from fpsim.records.settings import Settings

__all__ = ["StepResult", "replayed", "rule_of"]

_FLOATS = {32: types.float32, 64: types.float64}


class StepResult(NamedTuple):
    """What one lane of a kernel's step leaves: bits of the result, and flags."""

    code: Word
    flags: Word


def rule_of(builder: TermBuilder, constants: Any, width: int) -> RoundingRule:
    """The constants of a plan, in lanes."""
    numbers = (builder.theory.word(int(number), width) for number in constants)
    lanes: list[Any] = [builder.bits(number) for number in numbers]
    return RoundingRule(*lanes)


def _choices(choice: LoopVariant, builder: TermBuilder) -> tuple[Any, ...]:
    """The choices as the loop gives them to its step; whether it streams may be either."""
    streaming = Term(types.boolean, LaneValue(builder.theory.chance()), builder.point)
    supplied = choice.words == WORDS_GIVEN
    return (
        choice.mode, choice.flags, choice.flush, choice.one_zero, supplied, choice.residual,
        choice.status >= 0, streaming,
    )


def replayed(
    builder: TermBuilder, operation: str, settings: Settings, operands: Sequence[Word],
    word: Word | None = None, *, supplied: bool = False, level: int = FLAGS_EACH,
    formulas: Mapping[str, Callable[..., Any]] | None = None,
) -> StepResult:
    """One step of the kernel that the operation takes, of binary32 operands.

    Conversions look at magnitudes from a limit on, infinity after the first that overflows: the
    limit may be either. Flags are those of the element, or of the call with `level` FLAGS_STICKY.
    `formulas`: what stands for formulas that the step calls, by name.
    """
    choice, plan, width = variant(operation, settings, 4, level, supplied)
    rule = rule_of(builder, plan.constants, width)
    theory = builder.theory
    for name, code in zip("xyz", operands, strict=False):
        builder.memory[name, 0] = LaneValue(theory.real(code))
    builder.memory["words", 0] = LaneValue(word if word is not None else theory.word(0, 32))
    pointers = []
    for name in ("x", "y", "z")[: len(operands)]:
        pointers += [builder.pointer(name, types.float32), 0]
    pointers += pointers[:2] * (3 - len(operands))
    carrier = _FLOATS[8 * settings.format.carrier.itemsize]
    before = no_events(choice.operation, rule)
    names = functions_of(step, theory, **(formulas or {}))
    text = step.vector_step._defn.__wrapped__.__code__
    after = FunctionType(text, names)(
        choice.operation, _choices(choice, builder), *pointers,
        builder.pointer("out", carrier), 0, builder.pointer("marks", types.uint8), 0,
        builder.pointer("words", types.uint32), 0, rule, _earlier(builder, before, width),
    )
    code = builder.word(builder.memory["out", 0])
    if level == FLAGS_EACH:
        return StepResult(code, builder.word(builder.memory["marks", 0]))
    changed, tiny, over, raised = after
    flags = builder.word(summary((changed, tiny, over ^ before[2], raised)))
    return StepResult(code, flags.cut(7, 0))


def _earlier(builder: TermBuilder, before: Any, width: int) -> Any:
    """Before the step nothing was seen, or an overflow alone (what it does to the limit)."""
    limit = builder.word(before[2])
    infinity = builder.theory.word({32: 0x7F800000, 64: 0x7FF0 << 48}[width], width)
    if limit.is_plain and limit.value == 0:
        return before
    either = choose(builder.theory.chance(), limit, infinity)
    return (*before[:2], builder.bits(either), before[3])


