"""The patch that makes a tried remedy the program's own."""

from __future__ import annotations

import ast
import difflib
import io
import math
import re
import tokenize
from dataclasses import replace

from ipu.run.changes import Changes, number_text
from ipu.run.diagnosis import TriedRemedy, policy_shown
from ipu.run.scale_edits import with_loss_scaling
from ipu.run.ways import Way

__all__ = ["patch_of"]


def patch_of(
    remedy: TriedRemedy, base: Way, name: str, text: str, words: tuple[str, str]
) -> str:
    """A diff of the program that does what the remedy does; else one of the command's policy.

    "" of what no policy says, as that tensors of the program are float32.

    name, text    of the program's file.
    words         of the command that runs it: before --policy and behind the policy.

    >>> eps = TriedRemedy("", Way.parse("fp16+eps=1e-4"), 0.0, True)
    >>> print(patch_of(eps, Way.parse("fp16"), "a.py", "opt = Adam(p, eps=1e-8)\\n", ("", "")))
    --- a.py
    +++ a.py
    @@ -1 +1 @@
    -opt = Adam(p, eps=1e-8)
    +opt = Adam(p, eps=0.0001)
    """
    changes, new = remedy.way.changes, text
    if remedy.way.policy == base.policy and remedy.way.sr == base.sr:
        factor = changes.loss_scale / base.changes.loss_scale
        if factor != 1 and _is_of_numbers(changes, base.changes):
            new = with_loss_scaling(new, factor)
        if changes.eps is not None:
            new = re.sub(r"\b(eps|epsilon)(\s*=\s*)[-+.\deE]+",
                         rf"\g<1>\g<2>{number_text(changes.eps)}", new)
        for old, value in changes.constants:
            new = _number_replaced(new, old, number_text(value))
    if new == text:
        before, behind = words
        if str(base) == str(remedy.way):
            return ""
        return f"-{before} --policy {policy_shown(base)} {behind}\n" \
               f"+{before} --policy {policy_shown(remedy.way)} {behind}"
    lines = difflib.unified_diff(text.splitlines(), new.splitlines(), name, name, lineterm="")
    return "\n".join(lines)


def _is_of_numbers(changes: Changes, base: Changes) -> bool:
    """Whether changes differ from others in numbers that the program writes alone.

    A scale is one cure with what else is changed: by itself it may be none.
    """
    return base == replace(
        changes, loss_scale=base.loss_scale, eps=base.eps, constants=base.constants,
        halves_by_policy=base.halves_by_policy)


def _number_replaced(text: str, old: float, new: str) -> str:
    """The program with every literal of a number replaced; comments and strings stay.

    A literal has no sign: of a negative number the size is replaced.
    """
    lines = text.splitlines(keepends=True)
    for token in reversed(list(tokenize.generate_tokens(io.StringIO(text).readline))):
        if token.type == tokenize.NUMBER and _literal(token.string) == abs(old):
            (row, begin), (_, end) = token.start, token.end
            lines[row - 1] = lines[row - 1][:begin] + new.lstrip("-") + lines[row - 1][end:]
    return "".join(lines)


def _literal(text: str) -> float:
    """The value of a literal of Python; NaN of one that is no real number."""
    value = ast.literal_eval(text)
    return math.nan if isinstance(value, complex) else float(value)
