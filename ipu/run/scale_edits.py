"""The loss scale of a program that gives it to its optimisers, as PopTorch's `loss_scaling=` does.

It is edited where an optimiser is made in the text: a call of what the program imports from
`poptorch.optim`, under whatever name. A call whose keywords are a mapping may hold the scale
already, and stays.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["with_loss_scaling"]

_OPTION, _OPTIMISERS = "loss_scaling", "poptorch.optim."
#: A place in the text, as lines and bytes of them are counted by `ast`: begin and end.
_Span = tuple[int, int, int, int]


def with_loss_scaling(text: str, factor: float) -> str:
    """The program with the scale of every optimiser times a factor; where it has none, with one.

    >>> print(with_loss_scaling("from poptorch.optim import SGD\\nopt = SGD(p, lr=0.1)", 1024.0))
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
    lines = [line.encode() for line in text.splitlines(keepends=True)]
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
