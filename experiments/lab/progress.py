"""Progress on the terminal, for everything that lasts more than two seconds.

Bars go to standard error and only to a terminal; they appear after a second.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")

DELAY = 1.0
#: Whether bars are shown; None: where standard error is a terminal.
_disable: bool | None = None


def be_quiet() -> None:
    """No bars in this process; another one shows what it does."""
    global _disable
    _disable = True
    # tqdm's own lock is shared between processes; one that is ended by its parent would leave it.
    tqdm.set_lock(threading.RLock())


def progress(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """The items, with a bar that counts them.

    >>> list(progress(range(3), "counting"))
    [0, 1, 2]
    """
    yield from tqdm(
        items, desc=f"  {label}", total=total, delay=DELAY, leave=False, disable=_disable
    )


@contextmanager
def clock(label: str, budget: float) -> Iterator[None]:
    """A bar of seconds against the expected time, also while kernels compile."""
    bar = tqdm(
        desc=label,
        total=budget,
        delay=DELAY,
        leave=False,
        disable=_disable,
        bar_format="{desc} |{bar}| {n:.0f} s of about {total:.0f} s",
    )
    finished = threading.Event()
    ticker = threading.Thread(target=_tick, args=(bar, budget, finished), daemon=True)
    if not bar.disable:
        ticker.start()
    try:
        yield
    finally:
        finished.set()
        if ticker.is_alive():
            ticker.join()
        bar.close()


def _tick(bar: tqdm[None], budget: float, finished: threading.Event) -> None:
    step = 0.25
    while not finished.wait(step):
        bar.total = max(budget, bar.n + step)
        bar.update(step)
