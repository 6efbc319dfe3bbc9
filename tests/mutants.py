"""Mutants of the code: one small change each, chosen from a seed (`tests.mutate` runs them).

Changed are operators, numbers, `and`, `or`, `not`, `True`, `False`, `min`, `max`, keyword
arguments, results, `break` and `continue`. Left alone is what no test should pin down: strings,
annotations, exported names, messages of errors and warnings, and the looks of figures.
"""

from __future__ import annotations

import ast
import io
import json
import random
import tokenize
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("fpsim", "ipu", "experiments")
#: A mutant of a kernel compiles it and what calls it anew: at most one in so many is one.
ONE_KERNEL_IN = 3

COMPARISONS = {
    "<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",),
    "!=": ("==",), "is": ("is not",), "is not": ("is",), "in": ("not in",), "not in": ("in",),
}
OPERATORS = {
    "+": ("-",), "-": ("+",), "*": ("//", "+"), "//": ("*",), "/": ("*",), "%": ("*",),
    "**": ("*",), "<<": (">>",), ">>": ("<<",), "&": ("|",), "|": ("&",), "^": ("&",), "@": ("*",),
}
NAMES = {
    "min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum",
    "maximum": "minimum", "floor": "ceil", "ceil": "floor",
}

#: Keyword arguments that are texts, or the looks of a figure.
LOOKS = {
    "alpha", "color", "colors", "cmap", "constrained_layout", "dpi", "edgecolor", "facecolor",
    "figsize", "fontsize", "gridspec_kw", "ha", "hatch", "help", "description", "epilog",
    "metavar", "prog", "show_default", "short_help", "height_ratios", "label", "layout",
    "linestyle", "linewidth", "loc", "ls", "lw", "marker", "markersize", "ms", "ncol", "ncols",
    "pad", "rotation", "rotation_mode", "sharex", "sharey", "stacklevel", "title", "va",
    "width_ratios", "xytext", "zorder",
}
#: Calls that only warn, and decorators whose options no result depends on.
SILENT = frozenset({"warn", "dataclass", "TypeVar", "lru_cache"})


#: Its arguments are inches.
FIGURE = "new_figure"


@dataclass(frozen=True)
class Mutant:
    """One change of one file: characters `start` to `end` of its text become `after`."""

    path: str
    start: int
    end: int
    after: str
    kind: str

    @property
    def is_kernel(self) -> bool:
        return self.path.startswith("fpsim/kernels/")

    def applied(self, text: str) -> str:
        """The changed text."""
        return text[: self.start] + self.after + text[self.end :]

    def line(self, text: str) -> int:
        """The number of the changed line."""
        return text.count("\n", 0, self.start) + 1

    def source(self, text: str) -> str:
        """The changed line as it was."""
        return text.splitlines()[self.line(text) - 1].strip()

    def column(self, text: str) -> int:
        """Where the change begins in the line, whose indentation does not count."""
        before = text[: self.start].rpartition("\n")[2]
        return len(before.lstrip())

    def before(self, text: str) -> str:
        """What is changed, as one line."""
        return " ".join(text[self.start : self.end].split())

    def name(self, text: str) -> str:
        """What changes, as one line."""
        before = self.before(text) or "·"
        return f"{self.path}:{self.line(text)}: {before} → {self.after.strip() or '·'}"


class Sites(ast.NodeVisitor):
    """The changes that one file allows: (start, end, after, kind), several may share a place."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))
        self.tokens = [
            (self.starts[row - 1] + column, self.starts[row - 1] + column + len(t.string), t.string)
            for t in tokenize.generate_tokens(io.StringIO(text).readline)
            if t.type in (tokenize.OP, tokenize.NAME)
            for row, column in (t.start,)
        ]
        self.changes: list[tuple[int, int, tuple[str, ...], str]] = []
        self.visit(ast.parse(text))

    # Places ---------------------------------------------------------------------------------

    def at(self, line: int, column: int) -> int:
        """The character at a place of the parser, which counts bytes."""
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())

    def span(self, node: ast.expr | ast.keyword) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)

    def after(self, character: int) -> int:
        """The index of the first token from this character on."""
        return bisect_left(self.tokens, (character, 0, ""))

    def add(self, start: int, end: int, after: tuple[str, ...], kind: str) -> None:
        self.changes.append((start, end, after, kind))

    def between(self, left: ast.expr, right: ast.expr, table: dict[str, tuple[str, ...]]) -> None:
        """The operator between two operands."""
        low, high = self.span(left)[1], self.span(right)[0]
        inside = [t for t in self.tokens[self.after(low) : self.after(high)] if t[2] not in "()"]
        operator = " ".join(t[2] for t in inside)
        if inside and operator in table:
            self.add(inside[0][0], inside[-1][1], table[operator], "operator")

    # What is left alone ---------------------------------------------------------------------

    def visit_Raise(self, node: ast.Raise) -> None:
        """A message."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text."""

    def visit_Assert(self, node: ast.Assert) -> None:
        self.visit(node.test)

    def visit_arg(self, node: ast.arg) -> None:
        """A name and its type."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        if not any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for child in (node.args, *node.decorator_list, *node.body):
            self.visit(child)

    def visit_If(self, node: ast.If) -> None:
        test = ast.unparse(node.test)
        if "TYPE_CHECKING" not in test and "__name__" not in test:
            self.generic_visit(node)

    # What is changed ------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        for left, right in zip([node.left, *node.comparators], node.comparators, strict=False):
            self.between(left, right, COMPARISONS)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.between(node.left, node.right, OPERATORS)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self.between(left, right, {"and": ("or",), "or": ("and",)})
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        table = {f"{op}=": tuple(f"{a}=" for a in after) for op, after in OPERATORS.items()}
        self.between(node.target, node.value, table)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        start = self.span(node)[0]
        if isinstance(node.op, ast.Not):
            self.add(start, start + 3, ("",), "not removed")
        elif isinstance(node.op, ast.USub | ast.Invert):
            self.add(start, start + 1, ("",), "sign removed")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool):
            self.add(*self.span(node), (str(not value),), "constant")
        elif isinstance(value, int | float):
            self.add(*self.span(node), (repr(value + 1), f"({value - 1!r})"), "constant")

    def visit_Call(self, node: ast.Call) -> None:
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in SILENT:
            return
        if name == FIGURE:
            for keyword in node.keywords:
                self.visit(keyword.value)
            return
        if name in NAMES:
            end = self.span(node.func)[1]
            self.add(end - len(name), end, (NAMES[name],), "name")
        for child in (node.func, *node.args):
            self.visit(child)
        for keyword in node.keywords:
            if keyword.arg in LOOKS:
                continue
            self.visit(keyword.value)
            if keyword.arg is not None:
                self.add(*self.with_comma(*self.span(keyword)), ("",), "keyword removed")

    def with_comma(self, start: int, end: int) -> tuple[int, int]:
        """A keyword argument with one comma beside it, if there is one."""
        before, after = self.tokens[self.after(start) - 1], self.tokens[self.after(end)]
        if after[2] == ",":
            return start, after[1]
        return (before[0], end) if before[2] == "," else (start, end)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return
        self.add(*self.span(value), ("None",), "result")
        self.visit(value)

    def visit_Break(self, node: ast.Break) -> None:
        start = self.at(node.lineno, node.col_offset)
        self.add(start, start + 5, ("continue",), "jump")

    def visit_Continue(self, node: ast.Continue) -> None:
        start = self.at(node.lineno, node.col_offset)
        self.add(start, start + 8, ("break",), "jump")


@lru_cache(maxsize=16)
def _meaning(text: str) -> str:
    """A program but for its spelling; a file has many mutants, so it is parsed once."""
    return ast.dump(ast.parse(text))


def is_another_program(mutant: Mutant, text: str) -> bool:
    """Whether the changed text is Python, and not the same but for its spelling."""
    try:
        changed = ast.parse(mutant.applied(text))
    except SyntaxError:
        return False
    return ast.dump(changed) != _meaning(text)


def mutants_of(path: str, text: str) -> Iterator[Mutant]:
    """Every change of one file."""
    for start, end, choices, kind in Sites(text).changes:
        for after in choices:
            mutant = Mutant(path, start, end, after, kind)
            if is_another_program(mutant, text):
                yield mutant


@cache
def changes_of(name: str) -> list[tuple[int, int, tuple[str, ...], str]]:
    """What can be changed in one file of the tree."""
    return Sites((ROOT / name).read_text(encoding="utf-8")).changes


def places(only: str = "") -> list[tuple[str, int]]:
    """The places that can be changed, one for each, whatever the number of changes there."""
    files = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    names = [path.relative_to(ROOT).as_posix() for path in files]
    return [(f, n) for f in names if f.startswith(only) for n in range(len(changes_of(f)))]


def choose(seed: int, count: int, only: str = "") -> list[Mutant]:
    """`count` mutants, every place as likely as every other; kernels at most one in three.

    >>> few = choose(0, 4, "fpsim/state")
    >>> few == choose(0, 4, "fpsim/state"), few == choose(1, 4, "fpsim/state"), len(few)
    (True, False, 4)
    """
    rng = random.Random(seed)
    rest = places(only)
    rng.shuffle(rest)
    kernels = count // ONE_KERNEL_IN if not only.startswith("fpsim/kernels") else count
    sample: list[Mutant] = []
    for name, n in rest:
        if len(sample) == count:
            break
        start, end, choices, kind = changes_of(name)[n]
        mutant = Mutant(name, start, end, rng.choice(choices), kind)
        if mutant.is_kernel and sum(m.is_kernel for m in sample) >= kernels:
            continue
        if is_another_program(mutant, (ROOT / name).read_text(encoding="utf-8")):
            sample.append(mutant)
    return sample


#: Fields of a recorded row that say which mutant it is; a row may name the test that noticed it.
WHICH = ("path", "line", "column", "before", "after", "nth")
RECORDED = ROOT / "tests" / "golden" / "mutants.json"


def recorded(path: Path = RECORDED) -> dict[Mutant, str]:
    """The mutants of a sample that was run before, as far as their lines are still there.

    `choose` takes other ones after every edit of the tree, so no two commits could be compared.
    Each has the test that noticed it, or an empty text.
    """
    loaded = json.loads(path.read_text(encoding="utf-8"))
    rows = {tuple(row[field] for field in WHICH): row.get("by", "") for row in loaded}
    there = {}
    for name in sorted({str(row[0]) for row in rows}):
        if not (ROOT / name).exists():
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        # Lines may be there more than once.
        times: Counter[tuple[object, ...]] = Counter()
        for start, end, choices, kind in changes_of(name):
            for after in choices:
                m = Mutant(name, start, end, after, kind)
                change = name, m.source(text), m.column(text), m.before(text), after
                if (*change, times[change]) in rows:
                    there[m] = rows[*change, times[change]]
                times[change] += 1
    return there


def room_of(path: str) -> str:
    """The room of a file; each front end is one, and the files at the top of `fpsim`.

    >>> room_of("ipu/frontends/torch/aten/norms.py"), room_of("fpsim/array.py")
    ('ipu/frontends/torch', 'fpsim')
    """
    folders = path.split("/")[:-1]
    return "/".join(folders[: 3 if folders[:2] == ["ipu", "frontends"] else 2])
