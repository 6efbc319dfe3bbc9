"""The patch that makes a tried remedy the program's own."""

from __future__ import annotations

import ast
import difflib
import io
import math
import re
import shlex
import tokenize
from collections.abc import Iterator
from dataclasses import replace

from ipu.run.changes import Changes, number_text
from ipu.run.diagnosis import TriedRemedy, policy_shown
from ipu.run.ways import Way

__all__ = ["patch_of"]

#: The option of PopTorch's optimisers that is the program's loss scale.
_OPTION, _OPTIMISERS = "loss_scaling", "poptorch.optim."
#: A place in the text, as lines and bytes of them are counted by `ast`: begin and end.
_Span = tuple[int, int, int, int]


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
            new = _with_loss_scaling(new, factor)
        if changes.eps is not None:
            new = re.sub(r"\b(eps|epsilon)(\s*=\s*)[-+.\deE]+",
                         rf"\g<1>\g<2>{number_text(changes.eps)}", new)
        for old, value in changes.constants:
            new = _number_replaced(new, old, number_text(value))
    if new == text:
        before, behind = words
        if str(base) == str(remedy.way):
            return ""
        return f"-{before} --policy {_quoted(base)} {behind}\n" \
               f"+{before} --policy {_quoted(remedy.way)} {behind}"
    lines = difflib.unified_diff(text.splitlines(), new.splitlines(), name, name, lineterm="")
    return "\n".join(lines)


def _quoted(way: Way) -> str:
    """The way as a shell takes it: patterns of layers are those of file names.

    >>> _quoted(Way.parse("fp16+head=f32")), _quoted(Way.parse("fp16+head*=f32"))
    ('fp16+head=f32', "'fp16+head*=f32'")
    """
    return shlex.quote(str(policy_shown(way)))


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


# The loss scale of optimisers --------------------------------------------------------------------


def _with_loss_scaling(text: str, factor: float) -> str:
    """The program with the scale of every optimiser times a factor; where it has none, with one.

    An optimiser is made by a call of what the program imports from `poptorch.optim`. One whose
    keywords are a mapping, which may hold the scale already, stays.

    >>> print(_with_loss_scaling("from poptorch.optim import SGD\\nopt = SGD(p, lr=0.1)", 1024.0))
    from poptorch.optim import SGD
    opt = SGD(p, loss_scaling=1024.0, lr=0.1)
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return text
    names = dict(_imported(tree))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)
             and _dotted(node.func, names).startswith(_OPTIMISERS)]
    edits = [edit for call in calls if (edit := _edit(call, text, factor)) is not None]
    lines = text.encode().splitlines(keepends=True)  # at ends of lines alone, as `ast` counts
    for (row, begin, last, end), new in sorted(edits, reverse=True):
        behind = lines[last - 1][end:]
        lines[row - 1:last] = [lines[row - 1][:begin] + new.encode() + behind]
    return b"".join(lines).decode()


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names of the program with what they are of modules that it imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((row.asname, row.name) for row in node.names if row.asname)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from ((row.asname or row.name, f"{node.module}.{row.name}") for row in node.names)


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    """The whole name of a function that is called; "" of what has none."""
    if isinstance(node, ast.Name):
        return names.get(node.id, node.id)
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return ""


def _edit(call: ast.Call, text: str, factor: float) -> tuple[_Span, str] | None:
    """What is written into one call, and where; None where it is not known."""
    present = next((row.value for row in call.keywords if row.arg == _OPTION), None)
    if present is not None:
        return _span(present), _product(present, text, factor)
    if not call.keywords or any(row.arg is None for row in call.keywords):
        return None
    row, place = min((keyword.lineno, keyword.col_offset) for keyword in call.keywords)
    return (row, place, row, place), f"{_OPTION}={factor!r}, "


def _product(present: ast.expr, text: str, factor: float) -> str:
    """A number of the program times a factor; what is no number stays as it is written."""
    if isinstance(present, ast.Constant) and isinstance(present.value, (int, float)):
        return repr(present.value * factor)
    source = ast.get_source_segment(text, present) or ast.unparse(present)
    is_simple = isinstance(present, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
    return f"{source if is_simple else f'({source})'} * {factor!r}"


def _span(node: ast.expr) -> _Span:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset
