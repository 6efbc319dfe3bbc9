"""The program: python -m tests.mutate [--seed 0] [--count 100] [--only fpsim/state] [--json OUT].

Applies mutants (`tests.mutants`) one by one to a copy of the tree and says which test notices each.
The test file of the changed module runs first, with its doctests; then those of its room and of the
modules that import it, nearest first; then tests of results as a whole. Of a recorded mutant the
test that noticed it runs before all others. A failure counts where the same test passes without the
mutant, and a run over its time limit where the unchanged tree needs less. Front ends run in the
environments of their frameworks. With --json a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import SimpleQueue

from tests.mutants import PACKAGES, ROOT, Mutant, choose, recorded
from tests.test_architecture import arrows, modules

CAUGHT, SLOW, SURVIVED, UNDECIDED, EQUIVALENT = (
    "caught", "over time", "survived", "undecided", "equivalent",
)
#: Mutants that no test can notice, each with the reason.
JUDGED = ROOT / "tests" / "golden" / "equivalent_mutants.json"

#: Test files of importing modules that follow those of the module's room.
NEIGHBOURS = 10
#: Tests of results as a whole, by the package of the changed module.
WIDE = {
    "fpsim": ("tests/test_digests.py", "tests/fpsim/test_laws.py", "tests/test_documents.py"),
    "ipu": ("tests/test_digests.py", "tests/ipu/ops/test_ops.py",
            "tests/ipu/learn/optim/test_optim.py", "tests/test_documents.py"),
    "experiments": ("tests/experiments/test_tree.py", "tests/experiments/test_cli.py"),
}
#: Environments that the Makefile makes, by the files whose tests need them.
ENVIRONMENTS = {
    ("ipu/frontends/tensorflow",): ".venv-tensorflow", ("ipu/frontends",): ".venv-torch",
    ("ipu/members/grpc", "ipu/members/mpi"): ".venv-distributed",
}
#: Seconds of the first tests (the module's own) and of all others together.
LIMITS = (300.0, 900.0)
#: Bytes of address space of a run: a mutant that asks for more fails, and the machine works on.
MEMORY = 16 << 30
_LEFT_BEHIND = shutil.ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis")
#: Folders of results, which only the top of the tree has: rooms may have their names.
_RESULTS = {"reports", "runs"}


# Which tests --------------------------------------------------------------------------------


@cache
def importers() -> dict[str, set[str]]:
    """The modules that import each module."""
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for module, others in arrows().items():
        for other in others:
            graph[other].add(module)
    return graph


def module_of(path: str) -> str:
    """The name of the module in a file.

    >>> module_of("experiments/sums/swamping.py")
    'ipu.experiments.sums.swamping'
    """
    return next(name for name, place in modules().items() if place == ROOT / path)


def mirror(path: str) -> str | None:
    """The test file of a module; None where it is a package.

    >>> mirror("fpsim/records/flags.py")
    'tests/fpsim/records/test_flags.py'
    """
    place = Path(path)
    test = Path("tests") / place.parent / f"test_{place.name}"
    return test.as_posix() if (ROOT / test).exists() else None


def users(module: str) -> list[str]:
    """Every module that imports this one, directly or through others, nearest first."""
    order, queue = [], deque([module])
    visited = {module}
    while queue:
        here = queue.popleft()
        for other in sorted(importers()[here] - visited):
            visited.add(other)
            order.append(other)
            queue.append(other)
    return order


def stages(path: str) -> tuple[list[str], list[str]]:
    """The tests that run first, and those that run where they notice nothing."""
    mirrored = mirror(path)
    doctests = [] if path.startswith("experiments") else [path]
    first = [mirrored, *doctests] if mirrored else doctests
    folder = (ROOT / "tests" / path).parent
    room = sorted(p.relative_to(ROOT).as_posix() for p in folder.glob("test_*.py"))
    near = [mirror(modules()[m].relative_to(ROOT).as_posix()) for m in users(module_of(path))]
    others = [test for test in near if test and test not in room][:NEIGHBOURS]
    later = [*room, *others, *WIDE[path.partition("/")[0]]]
    return first, [test for test in dict.fromkeys(later) if test not in first]


def python_of(path: str) -> str:
    """The interpreter that a file's tests need: of its framework's environment, where there is one.

    >>> python_of("fpsim/state/counts.py") == sys.executable
    True
    """
    for front_ends, environment in ENVIRONMENTS.items():
        if path.startswith(front_ends):
            python = ROOT / environment / "bin" / "python"
            return str(python) if python.exists() else sys.executable
    return sys.executable


# A copy of the tree -------------------------------------------------------------------------


def left_behind(folder: str, names: list[str]) -> set[str]:
    """What of a folder is not copied."""
    results = _RESULTS if Path(folder) == ROOT else set()
    return _LEFT_BEHIND(folder, names) | results.intersection(names)


class Tree:
    """A copy of the tree with compiled kernels of its own, where mutants are applied."""

    def __init__(self, folder: Path, python: str = sys.executable) -> None:
        self.root, self.cache, self.python = folder / "tree", folder / "cache", python
        self.stamp = time.time()
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(ROOT, self.root, ignore=left_behind, symlinks=True)
        self.kernels = self.folder_of_kernels()
        self._take_kernels()

    def environment(self) -> dict[str, str]:
        """Of the tests: tier, folder of kernels and code are those of the copy."""
        outer = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "NUMBA_CACHE"))}
        return outer | {
            "FPSIM_CACHE_DIR": str(self.cache), "FPSIM_TIER": "quick", "PYTHONPATH": str(self.root)
        }

    def folder_of_kernels(self) -> Path | None:
        """Where the tree as it is keeps compiled kernels; None where asking fails."""
        ask = "from fpsim.kernels.compiling import cache_folder; print(cache_folder())"
        done = subprocess.run(
            [self.python, "-c", ask], cwd=self.root, env=self.environment(),
            capture_output=True, text=True, check=False,
        )
        return Path(done.stdout.strip()) if done.returncode == 0 else None

    def _take_kernels(self) -> None:
        """Kernels that the checkout has compiled: the copy has the same sources."""
        from fpsim.kernels.compiling import cache_folder

        assert self.kernels is not None, "fpsim cannot be imported from a copy of the tree"
        if cache_folder().exists():
            shutil.copytree(cache_folder(), self.kernels, dirs_exist_ok=True)

    def apply(self, mutant: Mutant) -> None:
        """Change the file; a kernel gets a folder of kernels without those that it is part of."""
        path = self.root / mutant.path
        path.write_text(mutant.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
        # Python compares times of change: no two states of a file have the same one.
        self.stamp += 2
        os.utime(path, (self.stamp, self.stamp))
        if not mutant.is_kernel:
            return
        folder = self.folder_of_kernels()
        if folder is None or self.kernels is None or not self.kernels.exists():
            return
        here = module_of(mutant.path)
        stale = tuple(f"{m}." for m in (here, *users(here)))
        folder.mkdir(parents=True, exist_ok=True)
        for old in self.kernels.glob("*.nbc"):
            if not old.name.startswith(stale):
                os.link(old, folder / old.name)

    def restore(self, mutant: Mutant) -> None:
        """The file as it is in the checkout; kernels of the mutant are gone."""
        shutil.copy2(ROOT / mutant.path, self.root / mutant.path)
        for folder in (self.cache / "fpsim").glob("kernels-*"):
            if folder != self.kernels:
                shutil.rmtree(folder)

    def run(self, tests: list[str], limit: float) -> tuple[str | None, bool]:
        """The first test that fails (None: all pass), and whether the time was enough."""
        command = [
            self.python, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist",
            *tests,
        ]
        process = subprocess.Popen(
            command, cwd=self.root, env=self.environment(), text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        if sys.platform == "linux":
            import resource

            resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            return None, False
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        if process.returncode in (0, 5):
            return None, True
        names = [line[8:] for line in output.splitlines() if line.startswith("failed: ")]
        return names[0] if names else tests[0], True


# Verdicts -----------------------------------------------------------------------------------


def verdict(tree: Tree, mutant: Mutant, witness: str = "") -> tuple[str, str]:
    """What becomes of a mutant, and the test that says so.

    witness    the test that noticed it before.
    """
    if witness and (ROOT / witness.partition("::")[0]).exists():
        tree.apply(mutant)
        try:
            name, _ = tree.run([witness], LIMITS[0])
        finally:
            tree.restore(mutant)
        if name is not None and tree.run([witness], LIMITS[0]) == (None, True):
            return CAUGHT, witness
    for tests, limit in zip(stages(mutant.path), LIMITS, strict=True):
        left = list(tests)
        while left:
            tree.apply(mutant)
            try:
                name, enough = tree.run(left, limit)
            finally:
                tree.restore(mutant)
            if name is None and enough:
                break
            if not enough:
                return (SLOW if tree.run(left, limit)[1] else UNDECIDED), left[0]
            assert name is not None
            if tree.run([name], limit) == (None, True):
                return CAUGHT, name
            # It fails without the mutant too: what follows in the list may still notice.
            left = [test for test in left if test != name.partition("::")[0]]
    return SURVIVED, ""


@cache
def judged() -> dict[tuple[str, str, int, str, str], str]:
    """Reasons why mutants change nothing, by file, line, column, and both spellings."""
    rows = json.loads(JUDGED.read_text(encoding="utf-8")) if JUDGED.exists() else []
    return {(r["path"], r["line"], r["column"], r["before"], r["after"]): r["why"] for r in rows}


def row_of(tree: Tree, mutant: Mutant, witness: str = "") -> dict[str, str | float]:
    """The line of the table for one mutant."""
    text = (ROOT / mutant.path).read_text(encoding="utf-8")
    before = mutant.before(text)
    place = mutant.path, mutant.source(text), mutant.column(text)
    why = judged().get((*place, before, mutant.after), "")
    start = time.monotonic()
    result, by = (EQUIVALENT, why) if why else verdict(tree, mutant, witness)
    return {
        "mutant": mutant.name(text), "kind": mutant.kind, "result": result, "by": by,
        "path": mutant.path, "line": mutant.source(text), "before": before,
        "after": mutant.after, "seconds": round(time.monotonic() - start, 1),
    }


def rate(rows: list[dict[str, str | float]]) -> float:
    """Caught mutants among those that change something.

    >>> rate([{"result": "caught"}, {"result": "equivalent"}, {"result": "survived"}])
    0.5
    """
    counted = [row["result"] for row in rows if row["result"] != EQUIVALENT]
    return sum(result in (CAUGHT, SLOW) for result in counted) / max(1, len(counted))


def survey(
    mutants: list[Mutant] | dict[Mutant, str], folder: Path, jobs: int = 1, out: Path | None = None
) -> list[dict[str, str | float]]:
    """Rows of all mutants; those that `out` already has are not run again.

    mutants    or the test that noticed each.
    """
    witnesses = mutants if isinstance(mutants, dict) else {}
    done: dict[str, dict[str, str | float]] = {}
    if out is not None and out.exists():
        done = {r["mutant"]: r for r in json.loads(out.read_text(encoding="utf-8"))}
    trees: dict[str, SimpleQueue[Tree]] = {}
    for k, python in enumerate(dict.fromkeys(python_of(mutant.path) for mutant in mutants)):
        trees[python] = SimpleQueue()
        for n in range(jobs):
            trees[python].put(Tree(folder / f"{k}-{n}", python))

    def one(mutant: Mutant) -> dict[str, str | float]:
        name = mutant.name((ROOT / mutant.path).read_text(encoding="utf-8"))
        if name in done:
            return done[name]
        free = trees[python_of(mutant.path)]
        tree = free.get()
        try:
            return row_of(tree, mutant, witnesses.get(mutant, ""))
        finally:
            free.put(tree)

    rows = []
    pool = ThreadPoolExecutor(jobs)
    try:
        for row in (map if jobs == 1 else pool.map)(one, mutants):
            rows.append(row)
            print(f"{row['seconds']} s  {row['result']}  {row['mutant']}  {row['by']}", flush=True)
            if out is not None:
                out.write_text(json.dumps(rows, indent=1, ensure_ascii=False), encoding="utf-8")
    finally:
        pool.shutdown(cancel_futures=True)
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 if fewer than 95 of 100 are caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutate", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1, help="copies of the tree at work at once")
    parser.add_argument("--only", default="", help=f"how paths begin, of {', '.join(PACKAGES)}")
    parser.add_argument("--recorded", action="store_true", help="the sample that is recorded")
    parser.add_argument("--json", type=Path, help="rows, written after each mutant and read again")
    parser.add_argument("--work", type=Path, help="folder of the copies; kept, with its kernels")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        place = options.work or Path(folder)
        sample = (
            recorded() if options.recorded else choose(options.seed, options.count, options.only)
        )
        rows = survey(sample, place, options.jobs, options.json)
    for result in (SURVIVED, UNDECIDED, EQUIVALENT):
        for row in rows:
            if row["result"] == result:
                print(f"{result}: {row['mutant']}\n    {row['line']}\n    {row['by']}")
    counts = Counter(str(row["result"]) for row in rows)
    print(", ".join(f"{n} {result}" for result, n in counts.items()))
    print(f"{rate(rows):.1%} of {len(rows) - counts[EQUIVALENT]} caught")
    return int(rate(rows) < 0.95)


if __name__ == "__main__":
    sys.exit(main())
