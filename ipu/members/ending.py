"""The end of a program whose training loop is not ours: it may be left without a word.

A program that reaches its end waits for the others; one that ends by an error tells them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakKeyDictionary, WeakSet

from ipu.members.channel import Channel
from ipu.members.cluster import Cluster, ClusterError
from ipu.members.transport import StoppedError, failure

__all__ = ["before_end", "end_with_program", "leave", "leave_all", "name_of_process"]


#: Those that were left before the end of the program.
_left: WeakSet[Channel] = WeakSet()
#: Those that are left at the end, and what is done before.
_open: list[Channel] = []
_before: WeakKeyDictionary[Channel, list[Callable[[], None]]] = WeakKeyDictionary()


def end_with_program(channel: Channel) -> None:
    """Leave the others when this process ends, however it does, unless they were left before.

    The interpreter waits for the threads of executors, as those of a gRPC server, before it calls
    what `atexit` keeps. The list that it calls before has no public name.
    """
    register: Callable[..., None] = threading._register_atexit  # type: ignore[attr-defined]
    register(_at_exit, channel)
    _open.append(channel)


def name_of_process() -> str | None:
    """This process among several, as "worker-1", for its files; None for one alone.

    It is known from the environment, or as soon as the others were joined.
    """
    cluster = None
    with suppress(ClusterError):
        cluster = Cluster.from_environment()
    places = [(channel.rank, channel.size) for channel in _open]
    places += [(cluster.rank, cluster.size)] if cluster is not None else []
    return next((f"worker-{rank}" for rank, size in places if size > 1), None)


def before_end(channel: Channel, check: Callable[[], None]) -> None:
    """Call this once when the program has come to its end, before the others are left.

    It is called on all processes, or on none; it may raise StoppedError.
    """
    _before.setdefault(channel, []).append(check)


def leave_all() -> None:
    """The program has come to its end: leave the others, while its status can still tell.

    Raises    StoppedError where another process has failed, or what is equal on all is not.
    """
    for channel in _open:
        if channel not in _left:
            leave(channel)


def leave(channel: Channel) -> None:
    """Wait until every process has come to its end, and close the transport.

    Raises    StoppedError where another process has failed.
    """
    for check in _before.pop(channel, []):
        check()
    channel.barrier("the end of the program")
    channel.transport.close()
    _left.add(channel)


def _at_exit(channel: Channel) -> None:
    if channel in _left:
        return
    error: BaseException | None = getattr(sys, "last_value", None)
    if error is None:
        try:
            leave(channel)
        except StoppedError as stop:
            print(f"fpsim: {stop}", file=sys.stderr)
            channel.transport.close()
        return
    if isinstance(error, StoppedError):
        channel.transport.close()
        return
    who = channel.transport.describe(channel.rank)
    channel.transport.abort(failure(error, channel.rank, who))
    channel.transport.close()
