"""Independent jobs on all cores: as many processes as fpsim has threads, results in order."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

from fpsim import get_threads, set_threads
from ipu.experiments.lab.progress import progress
from ipu.learn.heap import keep_freed_memory

Job = TypeVar("Job")
Found = TypeVar("Found")


def in_processes(
    function: Callable[[Job], Found], jobs: Sequence[Job], label: str
) -> Iterator[Found]:
    """function(job) for each job, in order. What it finds may depend on the job alone.

    >>> list(in_processes(abs, [-1], "one"))
    [1]
    """
    workers = min(get_threads(), len(jobs))
    if workers < 2:
        yield from progress(map(function, jobs), label, len(jobs))
        return
    pool = ProcessPoolExecutor(workers, get_context("spawn"), initializer=_be_quiet)
    try:
        yield from progress(pool.map(function, jobs), label, len(jobs))
    finally:
        pool.shutdown(cancel_futures=True)


def _be_quiet() -> None:
    """One thread each, and ^C is the parent's business."""
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    set_threads(1)
