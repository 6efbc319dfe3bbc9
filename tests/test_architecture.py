"""The arrows between the rooms run one way, and drawing stays in `ipu.experiments` (law)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: From the ground up; a room may use what stands before it. Rooms on one line are level.
ORDER = [
    ("fpsim.kernels",),
    ("fpsim",),
    ("ipu.machine",),
    ("ipu.learn",),
    ("ipu.feed", "ipu.parallel"),
    ("ipu.frontends",),
    ("ipu.experiments",),
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}
#: Each may be imported by these rooms only.
ONLY = {name: {"ipu.experiments"} for name in ("matplotlib", "jinja2", "click")}


def room_of(module: str) -> str | None:
    """The innermost room that a dotted name lies in."""
    return max((r for r in LEVEL if f"{module}.".startswith(f"{r}.")), key=len, default=None)


def imports(path: Path) -> Iterator[str]:
    package = path.relative_to(ROOT).parent.parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, (above, node.module)))
            yield from (f"{base}.{alias.name}" for alias in node.names)


def sources() -> list[Path]:
    return [
        p for top in ("fpsim", "ipu", "experiments") for p in sorted((ROOT / top).rglob("*.py"))
    ]


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    here = room_of(f"ipu.{name}" if name.startswith("experiments.") else name)
    for module in imports(path):
        there = room_of(module)
        if here and there:
            assert LEVEL[there] <= LEVEL[here], f"{here} imports {module}"
        allowed = ONLY.get(module.partition(".")[0])
        assert allowed is None or here in allowed, f"{here} imports {module}"
