"""The house: arrows between rooms run one way, no file is in a circle, functions stay short (law).

A room is a folder of modules. Imports count wherever they stand: relative ones, those inside
functions, and those for type checking alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

#: From the ground up: a room may import the rooms above it in this list. Rooms on one line are
#: level: they may import each other, their files in no circle.
ORDER = [
    ("fpsim.kernels",),
    ("fpsim.kernels.lanes",),
    ("fpsim.kernels.random", "fpsim.kernels.rounding"),
    ("fpsim.kernels.elementwise",),
    ("fpsim.kernels.blocks", "fpsim.kernels.by_operation", "fpsim.kernels.by_unit"),
    ("fpsim.records",),
    ("fpsim.state",),
    ("fpsim.elementwise",),
    ("fpsim.elementwise.blocks",),
    ("fpsim.products.jobs",),
    ("fpsim.products.by_operation", "fpsim.products.by_unit"),
    ("fpsim.products",),
    ("fpsim",),
    ("fpsim.linalg",),
    ("fpsim.inspect",),
    ("fpsim.testing",),
    ("fpsim.judge", "fpsim.judge.oracle", "fpsim.judge.verify"),
    ("fpsim.judge.proofs",),
    ("ipu",),
    ("ipu.machine", "ipu.machine.cost", "ipu.machine.units"),
    ("ipu.ops",),
    ("ipu.ops.updates",),
    (
        "ipu.learn", "ipu.learn.checkpoint", "ipu.learn.loss_scale",
        "ipu.learn.optim", "ipu.learn.variables",
    ),
    ("ipu.feed", "ipu.plan"),
    ("ipu.run", "ipu.run.births", "ipu.run.causes", "ipu.run.pages"),
    ("ipu.members",),
    ("ipu.frontends",),
    ("ipu.frontends.processes",),
    (
        "ipu.frontends.torch", "ipu.frontends.torch.aten", "ipu.frontends.torch.capture",
        "ipu.frontends.torch.replicas",
    ),
    ("ipu.frontends.poptorch", "ipu.frontends.poptorch.engine"),
    ("ipu.frontends.popart",),
    ("ipu.frontends.popdist",),
    ("ipu.frontends.popdist.path",),
    ("ipu.frontends.horovod",),
    (
        "ipu.frontends.tensorflow", "ipu.frontends.tensorflow.datasets",
        "ipu.frontends.tensorflow.engine", "ipu.frontends.tensorflow.engine.native",
        "ipu.frontends.tensorflow.estimator", "ipu.frontends.tensorflow.keras",
        "ipu.frontends.tensorflow.kernels", "ipu.frontends.tensorflow.kernels.moving",
        "ipu.frontends.tensorflow.operations", "ipu.frontends.tensorflow.pipelining",
        "ipu.frontends.tensorflow.reports", "ipu.frontends.tensorflow.settings",
        "ipu.frontends.tensorflow.training", "ipu.frontends.tensorflow.workers",
    ),
    ("fpsim.poptorch", "fpsim.tf", "fpsim.torch"),
    ("ipu.experiments.lab", "ipu.experiments.sweep"),
    ("ipu.experiments.pictures",),
    ("ipu.experiments.sums",),
    ("ipu.experiments.blocks",),
    ("ipu.experiments.published",),
    ("ipu.experiments.training",),
    ("ipu.experiments.execution",),
    ("ipu.experiments.bench", "ipu.experiments.bench.steps"),
    ("ipu.experiments.commands", "ipu.experiments.commands.programs"),
    ("ipu.experiments", "ipu.experiments.listings", "ipu.experiments.programs"),
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}

#: Kernels take numbers and give numbers: they import no room outside their own.
CLOSED = ("fpsim.kernels",)

#: What may import the judge: the command line and tests, so that nobody judges himself.
OF_THE_JUDGE = ("fpsim.judge", "ipu.experiments.commands")

#: Drawing and templates stay in rooms of pages, the command line in the experiments. So does what
#: takes as long to import as all of fpsim: every process of a comparison would wait for it.
ONLY = {
    "matplotlib": ("ipu.run.pages", "ipu.experiments"),
    "jinja2": ("ipu.run.pages",),
    "click": ("ipu.experiments",),
    "tqdm": ("ipu.experiments",),
    "scipy.stats": ("ipu.experiments",),
}

#: Frameworks of front ends, libraries of transports, and what may import them.
FRAMEWORKS = {
    "torch": (
        "ipu.frontends.torch", "ipu.frontends.poptorch", "ipu.experiments.execution.mnist_network",
    ),
    "grpc": ("ipu.members.grpc_server", "ipu.members.grpc_transport"),
    "mpi4py": ("ipu.members.mpi_transport",),
    "bitwuzla": ("fpsim.judge.proofs",),
    "dask": ("ipu.experiments",),
    "distributed": ("ipu.experiments",),
}

FUNCTION = 60
#: Longer functions, each with the measurement beside it that speaks against cutting it.
LONG: set[tuple[str, str]] = {
    ("fpsim.kernels.by_operation.general", "rounded_kernel"),
    ("fpsim.kernels.by_unit.tiles", "tile_kernel"),
    ("fpsim.kernels.by_unit.tiles", "loop"),
}


def top(name: str) -> Path:
    """The folder of a package: the experiments' lies beside the others."""
    return ROOT / name.rpartition(".")[2]


@cache
def modules() -> dict[str, Path]:
    """Every module by its name."""
    files = {}
    for package in ("fpsim", "ipu", "ipu.experiments"):
        for path in sorted(top(package).rglob("*.py")):
            parts = path.relative_to(top(package)).with_suffix("").parts
            files[".".join([package, *parts]).removesuffix(".__init__")] = path
    return files


def room_of(module: str) -> str:
    """The folder that a module lies in, or the module itself where it is a room of its own."""
    if module in LEVEL:
        return module
    return module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]


@cache
def imported(module: str) -> frozenset[str]:
    """Dotted names that a module imports; of `from a import b` both a and a.b."""
    return frozenset(_imported(module))


def _imported(module: str) -> Iterator[str]:
    package = module if modules()[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(modules()[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = parts[: len(parts) - node.level + 1] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


@cache
def arrows() -> dict[str, set[str]]:
    """The modules of ours that each module imports; a package stands for what it exports."""
    graph: dict[str, set[str]] = {}
    for module in modules():
        names = {name for name in imported(module) if name in modules()} - {module}
        # A module's own packages are imported before it in any case.
        names = {name for name in names if not module.startswith(f"{name}.")}
        # `from a import b` with a module b is an import of b, not of what a exports.
        graph[module] = {n for n in names if not any(m.startswith(f"{n}.") for m in names)}
    return graph


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module):
    here = room_of(module)
    assert here in LEVEL, f"{here} is a new room; give it a place in ORDER"
    for other in arrows()[module]:
        there = room_of(other)
        assert LEVEL[there] <= LEVEL[here], f"{module} imports {other}, which stands above it"
        closed = next((c for c in CLOSED if f"{here}.".startswith(f"{c}.")), None)
        assert closed is None or f"{there}.".startswith(f"{closed}."), f"{module} imports {other}"
        if there.startswith("fpsim.judge"):
            assert here.startswith(OF_THE_JUDGE), f"{module} imports the judge"
    for extra in ("fpsim.poptorch", "fpsim.tf", "fpsim.torch"):
        assert extra not in arrows()[module], f"{module} imports {extra}, an extra"
    for framework, rooms in FRAMEWORKS.items():
        uses = framework in {name.partition(".")[0] for name in imported(module)}
        assert not uses or module.startswith(rooms), f"{module} imports {framework}, an extra"
    for package, rooms in ONLY.items():
        uses = any(f"{name}.".startswith(f"{package}.") for name in imported(module))
        assert not uses or here.startswith(rooms), f"{module} imports {package}"


def test_no_file_is_in_a_circle():
    """Files that import nothing are taken away, again and again: nothing may be left."""
    left = {module: set(names) for module, names in arrows().items()}
    while leaves := {module for module, names in left.items() if not names & left.keys()}:
        left = {module: names for module, names in left.items() if module not in leaves}
    assert not left, f"a circle goes through some of {sorted(left)}"


def test_no_test_changes_what_a_kernel_reads_while_it_compiles():
    """Kernels are kept on disk without it: users would get the kernel of the changed module."""
    changed = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        kernels = {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fpsim.kernels")
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
                target = node.args[0]
                name = target.id if isinstance(target, ast.Name) else ""
                text = target.value if isinstance(target, ast.Constant) else ""
                if name in kernels or str(text).startswith("fpsim.kernels."):
                    changed.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not changed


def test_functions_stay_short():
    result = set()
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno + 1 > FUNCTION:
                    result.add((module, node.name))
    assert result <= LONG, f"longer than {FUNCTION} lines: {sorted(result - LONG)}"


#: Participles and pronouns: as names they do not say what they hold.
VAGUE = {
    "chosen", "each", "found", "given", "kept", "known", "made", "own", "said", "seen", "some",
}


def bound(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names of variables, parameters and attributes that a module binds, and their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno


def test_names_say_what_they_hold():
    """A variable is called `ipu` or `replicas`, not `own`; in tests too."""
    vague = [
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in [*modules().values(), *sorted((ROOT / "tests").rglob("*.py"))]
        for name, line in bound(ast.parse(path.read_text(encoding="utf-8")))
        if name.strip("_") in VAGUE
    ]
    assert not vague


#: Classes that two vendors' modules, or a vendor and we, call by one name: a front end has the
#: vendor's names, exactly.
VENDORS = {
    "Adam", "AdamW", "Block", "CrossReplicaOptimizer", "MapGradientOptimizer", "Options", "Phase",
    "SGD", "TensorLocationSettings", "Variable",
}


def classes() -> dict[str, list[str]]:
    """The modules that define a class of each name, also inside functions."""
    places: dict[str, list[str]] = {}
    for module, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    return places


def test_a_class_name_stands_once_in_the_tree():
    repeated = {name: where for name, where in classes().items() if len(where) > 1}
    of_vendors = {
        name for name, where in repeated.items()
        if name in VENDORS and sum(not m.startswith("ipu.frontends.") for m in where) <= 1
    }
    assert not repeated.keys() - of_vendors, repeated


#: Modules that are rooms of their own, with a sentence elsewhere in CONTRIBUTING.md.
OUTSIDE = ("fpsim.testing", "fpsim.poptorch", "fpsim.tf", "fpsim.torch")


@pytest.mark.parametrize("room", sorted(set(LEVEL) - set(OUTSIDE)))
def test_a_room_says_what_it_is(room):
    """In the first sentence of its `__init__.py`, which CONTRIBUTING.md tells how to print."""
    if room not in modules():
        pytest.skip("not built yet")
    text = ast.get_docstring(ast.parse(modules()[room].read_text(encoding="utf-8"))) or ""
    assert len(text.partition("\n\n")[0]) > 20


def test_contributing_has_a_row_for_every_room_that_is_not_inside_another():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = {".".join(room.split(".")[:2]) for room in LEVEL} - {*OUTSIDE, "ipu"}
    folders = {room.replace("ipu.experiments", "experiments").replace(".", "/") for room in rooms}
    rows = set(re.findall(r"^\| `([\w/]+)/` \|", text, re.MULTILINE))
    assert rows == folders | {"tests"}
