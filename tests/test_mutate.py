"""Mutants change one thing, and tests notice them (law, golden)."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import mutate
from tests.mutants import (
    Mutant,
    Sites,
    changes_of,
    choose,
    is_another_program,
    mutants_of,
    recorded,
    room_of,
)
from tests.mutate import (
    CAUGHT,
    ROOT,
    SLOW,
    SURVIVED,
    Tree,
    mirror,
    python_of,
    rate,
    stages,
    survey,
    users,
    verdict,
)
from tests.tiers import pick

TEXT = '''
"""A docstring with 1 + 1."""
__all__ = ["f" + "g"]

def f(x: int | str, top: float = 2.0) -> bool:
    """Docstring."""
    for step in range(3):
        if not (x <= top) and x is not None:
            raise ValueError(f"x={x + 1} is no {1 + 1}")
        break
    return g(min(x, -step), exact=True, label="one" + "two")
'''


#: Rooms of the recorded sample.
ROOMS = (
    "fpsim/kernels", "fpsim/products", "fpsim/judge", "ipu/learn", "ipu/ops", "ipu/run",
    "ipu/plan", "ipu/members", "ipu/machine", "ipu/frontends/torch", "ipu/frontends/tensorflow",
    "ipu/frontends/poptorch", "ipu/frontends/horovod", "ipu/frontends/popdist",
)
#: Further rooms that the sample holds; its longest run has these too.
OTHER_ROOMS = (
    "fpsim", "fpsim/records", "fpsim/state", "fpsim/elementwise", "fpsim/linalg", "fpsim/inspect",
    "ipu/feed",
)


def changed(text: str) -> set[str]:
    return {" ".join(m.applied(text).split()) for m in mutants_of("f.py", text)}


def expected(*pairs: tuple[str, str]) -> set[str]:
    for before, _ in pairs:
        assert TEXT.count(before) == 1, before
    return {" ".join(TEXT.replace(before, after).split()) for before, after in pairs}


def test_every_change_of_a_text():
    assert changed(TEXT) == expected(
        ("= 2.0", "= 3.0"), ("= 2.0", "= (1.0)"), ("range(3)", "range(4)"),
        ("range(3)", "range((2))"), ("not (x", " (x"), ("<=", "<"), ("<=", ">"), (") and", ") or"),
        ("is not None", "is None"), ("break", "continue"), ("min(", "max("), ("-step", "step"),
        ("exact=True", "exact=False"), ("exact=True, ", ""),
        ('g(min(x, -step), exact=True, label="one" + "two")', "None"),
    )


def test_places_count_characters_and_the_parser_bytes():
    text = 'x = "×−∞" if a < b else -1\n'
    assert changed(text) >= {'x = "×−∞" if a <= b else -1', 'x = "×−∞" if a < b else 1'}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("x = a < b", 2), ("x = a not in b", 1), ("x = (a) * (b)", 2), ("x += 1", 3),
        ("x: int = a | b", 1), ("x = f(**b)", 0), ("x = f(a=b)", 1), ("x = 'a' 'b'", 0),
        ("if __name__ == '__main__': f(1)", 0), ("warnings.warn(a, stacklevel=2)", 0),
        ("assert a < b, 1 + 1", 2), ("def f(): return None", 0), ("x = not a", 1),
        ("x = new_figure(6, 4, square=2)", 2),
    ],
)
def test_counts_of_changes(text, count):
    assert len(list(mutants_of("f.py", text))) == count


def test_no_two_mutants_of_a_file_are_the_same():
    for path in ("fpsim/records/flags.py", "ipu/learn/policy.py", "experiments/lab/store.py"):
        text = (ROOT / path).read_text(encoding="utf-8")
        mutants = list(mutants_of(path, text))
        assert len(mutants) > 10
        assert len({m.applied(text) for m in mutants}) == len(set(mutants))


def test_a_seed_chooses_the_same_mutants_and_few_kernels():
    only = pick("fpsim", "", "")
    sample = choose(3, 12, only)
    assert sample == choose(3, 12, only)
    assert len(set(sample)) == 12
    assert sum(m.is_kernel for m in sample) <= 4
    assert all(m.path.startswith("fpsim/state/") for m in choose(3, 5, "fpsim/state"))


def test_tests_of_the_module_come_first_then_those_of_its_users():
    assert mirror("fpsim/state/counts.py") == "tests/fpsim/state/test_counts.py"
    assert mirror("fpsim/state/__init__.py") is None
    first, later = stages("fpsim/records/geometry.py")
    assert first == ["tests/fpsim/records/test_geometry.py", "fpsim/records/geometry.py"]
    assert "tests/fpsim/products/test_unfold.py" in later
    assert "tests/test_digests.py" in later
    assert later[0].startswith("tests/fpsim/records/")
    assert "tests/fpsim/test_array_exchange.py" in stages("fpsim/operations.py")[1]
    assert not set(first) & set(later)
    near = users("fpsim.products.unfold")
    assert near.index("fpsim.products.conv") < near.index("ipu.machine.device")


def test_most_of_the_recorded_sample_is_still_there():
    """Lines change; where too many have, record another sample, and judge its survivors."""
    sample = RECORDED
    rooms = Counter(room_of(mutant.path) for mutant in sample)
    assert all(rooms[room] >= 4 for room in (*ROOMS, *OTHER_ROOMS)), rooms
    assert sum(n for room, n in rooms.items() if room.startswith("experiments/")) >= 10, rooms
    assert sum(m.is_kernel for m in sample) <= 34
    for mutant, witness in sample.items():
        assert is_another_program(mutant, (ROOT / mutant.path).read_text(encoding="utf-8"))
        assert (ROOT / witness.partition("::")[0]).exists()


@pytest.mark.parametrize("notices", [True, False])
def test_a_witness_is_asked_first_and_the_others_where_it_notices_nothing(notices):
    by, other = "tests/fpsim/records/test_flags.py", "tests/fpsim/records/test_types.py"
    witness, calls = by if notices else other, []

    class Asked:
        """Tests that fail where the change is there, as far as they notice it."""

        is_changed = False

        def apply(self, mutant):
            self.is_changed = True

        def restore(self, mutant):
            self.is_changed = False

        def run(self, tests, limit):
            calls.append(list(tests))
            return (by if self.is_changed and by in tests else None), True

    mutant = one("fpsim/records/flags.py", LINE, "5", "6")
    assert verdict(Asked(), mutant, witness) == (CAUGHT, by)
    assert calls[0] == [witness]
    assert len(calls) == (2 if notices else 3)


def test_front_ends_run_in_the_environment_of_their_framework(monkeypatch, tmp_path):
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    paths = [f"ipu/frontends/{name}/a.py" for name in ("torch", "poptorch", "tensorflow")]
    assert {python_of(path) for path in paths} == {sys.executable}
    for name in ("torch", "tensorflow"):
        python = tmp_path / f".venv-{name}" / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.touch()
    names = [Path(python_of(path)).parts[-3] for path in paths]
    assert names == [".venv-torch", ".venv-torch", ".venv-tensorflow"]
    assert python_of("ipu/ops/norms.py") == sys.executable


RECORDED = recorded()
#: Those of which a test is known, by room: of each the first two in the full tier.
NOTICED = {
    room: dict(
        [(m, by) for m, by in RECORDED.items() if by and room_of(m.path) == room]
        [: pick(2, 2, None)]
    )
    for room in ROOMS
}


def needs_another(path):
    """Whether tests of a file need an environment that is not there, in which they would skip."""
    listed = [starts for starts in mutate.ENVIRONMENTS if path.startswith(starts)]
    return bool(listed) and python_of(path) == sys.executable


@pytest.mark.tier("full")
@pytest.mark.parametrize("room", [room for room in ROOMS if NOTICED[room]])
def test_recorded_mutants_are_still_noticed(room, tmp_path):
    """By the test that is recorded with each, or by another one."""
    sample = NOTICED[room]
    without = {m for m in sample if needs_another(m.path)}
    sample = {m: by for m, by in sample.items() if m not in without}
    if not sample:
        pytest.skip("the environment of this front end is not there; run: make test-frontends")
    rows = survey(sample, tmp_path)
    assert not [row["mutant"] for row in rows if row["result"] not in (CAUGHT, SLOW)]


def test_equivalents_are_not_counted():
    rows = [{"result": r} for r in ("caught", "over time", "survived", "undecided", "equivalent")]
    assert rate(rows) == 0.5
    assert rate([]) == 0.0


def test_judged_mutants_are_there_and_have_a_reason():
    """A line that has changed takes its judgement away."""
    for (path, line, column, before, after), why in mutate.judged().items():
        text = (ROOT / path).read_text(encoding="utf-8")
        mutants = (
            Mutant(path, b, e, a, kind) for b, e, after, kind in changes_of(path) for a in after
        )
        places = [m for m in mutants if (m.source(text), m.column(text)) == (line, column)]
        assert (before, after) in {(m.before(text), m.after) for m in places}, f"{path}: {line}"
        assert len(why) > 20


def one(path: str, line: str, before: str, after: str) -> Mutant:
    """The mutant of a line."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return next(
        m for m in mutants_of(path, text)
        if (m.source(text), text[m.start : m.end], m.after) == (line, before, after)
    )


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("mutants"))


LINE = "if isinstance(flags, bool) or not isinstance(flags, (int, np.integer)) or flags >> 5:"


def test_a_mutant_is_noticed_and_undone(tree):
    path = "fpsim/records/flags.py"
    mutant = one(path, LINE, "5", "6")
    result, by = verdict(tree, mutant)
    assert result == CAUGHT
    assert by.startswith(("tests/fpsim/records/test_flags.py::", path))
    assert (tree.root / path).read_bytes() == (ROOT / path).read_bytes()


@pytest.mark.tier("full")
def test_what_no_test_notices_survives(tree, monkeypatch):
    mutant = one("fpsim/records/flags.py", LINE, "5", "6")
    monkeypatch.setattr(mutate, "stages", lambda path: (["tests/fpsim/test_sources.py"], []))
    (tree.root / "tests/fpsim/test_sources.py").write_text("def test_nothing():\n    pass\n")
    assert verdict(tree, mutant) == (SURVIVED, "")


def test_a_test_that_fails_in_any_case_notices_nothing(tree, monkeypatch):
    mutant = one("fpsim/records/flags.py", LINE, "5", "6")
    monkeypatch.setattr(mutate, "stages", lambda path: (["tests/fpsim/test_broken.py"], []))
    (tree.root / "tests/fpsim/test_broken.py").write_text("def test_broken():\n    assert False\n")
    assert verdict(tree, mutant) == (SURVIVED, "")


def test_an_interrupted_run_goes_on(tmp_path, monkeypatch):
    calls = []

    class Quick:
        def __init__(self, folder: Path, python: str) -> None:
            pass

    def judge(tree: Tree, mutant: Mutant, witness: str) -> tuple[str, str]:
        calls.append(mutant)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return CAUGHT, "a test"

    monkeypatch.setattr(mutate, "Tree", Quick)
    monkeypatch.setattr(mutate, "verdict", judge)
    out, sample = tmp_path / "rows.json", choose(1, 5, "ipu/feed")
    with pytest.raises(KeyboardInterrupt):
        survey(sample, tmp_path, out=out)
    rows = survey(sample, tmp_path, out=out)
    assert len(rows) == 5
    assert len(calls) == 6


@pytest.mark.tier("deep")
def test_nineteen_of_twenty_mutants_are_caught(tmp_path):
    """A recorded sample over the whole tree; the run prints which test notices each."""
    sample = {m: by for m, by in RECORDED.items() if not needs_another(m.path)}
    rows = survey(sample, tmp_path)
    assert rate(rows) >= 0.95, [row["mutant"] for row in rows if row["result"] == SURVIVED]


def test_sites_of_an_empty_file():
    assert Sites("").changes == []


def test_a_copy_has_every_room():
    """Results lie in folders at the top whose names rooms have too."""
    assert mutate.left_behind(str(ROOT), ["reports", "runs", "ipu", ".git"]) == {
        "reports", "runs", ".git"
    }
    assert mutate.left_behind(str(ROOT / "ipu"), ["reports", "runs", "__pycache__"]) == {
        "__pycache__"
    }
