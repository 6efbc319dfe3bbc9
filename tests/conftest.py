"""Tiers, hypothesis profiles, and what ends every run: vector tests and names of failures."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.experiments.devtools import Tab, tab
from tests.tiers import TIER, reaches
from tests.wheels import build

#: One profile per tier: quick in a developer's loop, ci for the full tier, deep for nights.
PROFILES = {"quick": "quick", "full": "ci", "deep": "deep"}
SLOW_DATA = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("quick", max_examples=60, deadline=None, derandomize=True)
settings.register_profile(
    "ci", max_examples=1_000, deadline=None, print_blob=True, suppress_health_check=SLOW_DATA
)
settings.register_profile(
    "deep", max_examples=20_000, deadline=None, print_blob=True, suppress_health_check=SLOW_DATA
)
settings.load_profile(PROFILES[TIER])

REQUIRE_VECTORS = os.environ.get("FPSIM_REQUIRE_VECTORS", "") not in ("", "0")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background job ignores ^C, and so would every process that a test interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    pytest.importorskip("hatchling")
    return build(Path(__file__).parents[1], tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """A page in a real browser; a test that asks for it skips where there is none."""
    with tab(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests live until the end, so the collector of garbage never looks through them.

    It took a fifth of the time of the collection, and one second in twenty of the tests after it.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what belongs to a higher tier; of the rest, what takes minutes starts first.

    Otherwise one process may come to a test of minutes when the other has nothing left to do.
    """
    later = {i for i in items if any(not reaches(m.args[0]) for m in i.iter_markers("tier"))}
    if later:
        config.hook.pytest_deselected(items=[i for i in items if i in later])
    items[:] = [i for i in items if i not in later]
    items.sort(key=lambda item: item.get_closest_marker("minutes") is None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With FPSIM_REQUIRE_VECTORS=1 a vector test that skips has failed."""
    report = yield
    if REQUIRE_VECTORS and report.skipped and item.get_closest_marker("vectors"):
        report.outcome = "failed"
        report.longrepr = f"FPSIM_REQUIRE_VECTORS=1 allows no skip: {_reason(report)}"
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, None, None]:
    """After everything else pytest prints, the vector tests' account and the names of failures."""
    yield
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None or hasattr(session.config, "workerinput"):
        return
    for line in (*vector_account(terminal.stats), *failures(terminal.stats)):
        terminal.write_line(line)


def failures(stats: dict[str, list[pytest.TestReport]]) -> list[str]:
    """The names of what failed, as the last lines: a log that is cut keeps them."""
    reports = [*stats.get("failed", []), *stats.get("error", [])]
    return [f"failed: {name}" for name in dict.fromkeys(r.nodeid for r in reports)]


def vector_account(stats: dict[str, list[pytest.TestReport]]) -> list[str]:
    """Lines that say how many vector tests ran, and why the others did not."""
    skipped = Counter(_reason(r) for r in _vector_reports(stats, "skipped"))
    ran = sum(
        1 for kind in ("passed", "failed") for r in _vector_reports(stats, kind) if r.when == "call"
    )
    lines = [f"vector tests: {ran} ran, {sum(skipped.values())} skipped"]
    return lines + [f"  skipped {n}: {reason}" for reason, n in sorted(skipped.items())]


def _vector_reports(
    stats: dict[str, list[pytest.TestReport]], kind: str
) -> list[pytest.TestReport]:
    return [r for r in stats.get(kind, []) if "vectors" in getattr(r, "keywords", {})]


def _reason(report: pytest.TestReport) -> str:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return text.removeprefix("Skipped: ")
