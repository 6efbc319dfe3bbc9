"""Independent jobs on all cores: fresh processes that ignore ^C and end with their parent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context, parent_process, resource_tracker
from typing import TypeVar

from fpsim import get_threads, set_threads
from ipu.experiments.lab.progress import be_quiet, progress
from ipu.ops.heap import keep_freed_memory

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")


def in_processes(
    function: Callable[[Job], Outcome], jobs: Sequence[Job], label: str
) -> Iterator[Outcome]:
    """function(job) for each job, in order. The outcome may depend on the job alone.

    As many processes as fpsim has threads, with one thread each; inside such a process none.

    >>> list(in_processes(abs, [-1], "one"))
    [1]
    """
    n = min(get_threads(), len(jobs))
    if n < 2 or parent_process() is not None:
        yield from progress(map(function, jobs), label, len(jobs))
        return
    with _processes(n, 1) as pool:
        futures = _submit(pool, function, jobs)
        yield from progress((future.result() for future in futures), label, len(jobs))


def as_finished(
    function: Callable[[Job], Outcome], jobs: Sequence[Job], n: int, label: str
) -> Iterator[tuple[Job, Outcome]]:
    """(job, function(job)) in the order in which n processes finish; they share the threads."""
    with _processes(n, max(1, get_threads() // n)) as pool:
        job_of = dict(zip(_submit(pool, function, jobs), jobs, strict=True))
        for future in progress(as_completed(job_of), label, len(jobs)):
            yield job_of[future], future.result()


@contextmanager
def _processes(n: int, threads: int) -> Iterator[ProcessPoolExecutor]:
    """A pool; an exception inside, ^C among them, ends its processes at once."""
    pool = ProcessPoolExecutor(n, get_context("spawn"), initializer=_begin, initargs=(threads,))
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _submit(
    pool: ProcessPoolExecutor, function: Callable[[Job], Outcome], jobs: Sequence[Job]
) -> list[Future[Outcome]]:
    """Hand over the jobs, which starts the processes."""
    with held_interrupts():
        return [pool.submit(function, job) for job in jobs]


@contextmanager
def held_interrupts() -> Iterator[None]:
    """^C inside comes afterwards, and processes started inside inherit a mask without it.

    A process that still imports would print its traceback, and one that is being started when its
    parent leaves would print that its input ended. The mask alone does not hold it back: threads
    of libraries take the signal, and Python raises it in the main thread.
    """
    # It clears the mask when it starts, so it has to run before.
    resource_tracker.ensure_running()
    mask = getattr(signal, "pthread_sigmask", None)
    in_main = threading.current_thread() is threading.main_thread()
    held: list[int] = []
    usual = signal.getsignal(signal.SIGINT)
    if in_main:
        signal.signal(signal.SIGINT, lambda number, _frame: held.append(number))
    before = mask(signal.SIG_BLOCK, [signal.SIGINT]) if mask else None
    try:
        yield
    finally:
        if mask:
            mask(signal.SIG_SETMASK, before)
        if in_main:
            signal.signal(signal.SIGINT, usual or signal.default_int_handler)
    if held:
        raise KeyboardInterrupt


def _begin(threads: int) -> None:
    """In a new process: ^C and progress are the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    be_quiet()
    keep_freed_memory()
    set_threads(threads)
