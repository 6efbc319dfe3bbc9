"""Members: the processes of a run, and what each program does with the others.

They join, take the first one's values, meet at places of the program, sum, compare what must be
equal, and end. Every front end's replicas, workers and processes are names on this; the additions
have the addresses of one process with all replicas, so bits do not depend on how many there are.

Source    docs/semantics.md §2, §3 (replicas of one set).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from ipu.members.channel import Channel
from ipu.members.cluster import Cluster
from ipu.members.connect import connect
from ipu.members.ending import end_with_program, leave
from ipu.members.handshake import compare
from ipu.members.local_transport import local_transports
from ipu.members.transport import Kind, StoppedError, at_step, failure
from ipu.ops.listing import Listing

__all__ = ["END", "Members", "Meeting", "join"]

#: The place of a program that sends nothing more.
END = "its end"


class Meeting(NamedTuple):
    """A place where all processes meet: what they are about to compare or add, in which step.

    >>> str(Meeting("the gradients", 3)), str(Meeting(END, 3))
    ('the gradients in step 3', 'its end')
    """

    what: str
    step: int

    def __str__(self) -> str:
        return self.what if self.what == END else f"{self.what} in step {self.step}"


class Members:
    """This process among those of a run.

    rank, size    which it is, and how many there are.
    program       the operations of the first step, which all compare when they first meet.
    saved         step of the program's last checkpoint, for messages.

    >>> from ipu.members.local_transport import run_local
    >>> run_local(2, lambda t: Members(Channel(t)).meet(Meeting("the loss", 1), str(t.rank)))[0]
    ['0', '1']
    """

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.rank, self.size = channel.rank, channel.size
        self.program = Listing()
        self.saved: int | None = None

    def name(self, rank: int) -> str:
        """A process in a sentence."""
        return self.channel.transport.describe(rank)

    def stop(self, rank: int, sentence: str) -> NoReturn:
        """Stop the program on every process.

        rank      of the process that the sentence is about.

        Raises    StoppedError, always.
        """
        self.channel.stop(Kind.FAILED, rank, sentence)

    # Before the first step --------------------------------------------------------------------

    def compare(self, lines: Sequence[str]) -> None:
        """Return when these lines are equal on all processes.

        Raises    JoinError, on every process, with the first that differ.
        """
        compare(self.channel, lines)

    def root(self, text: bytes, what: str) -> bytes:
        """The bytes of the first process, on all."""
        return self.channel.broadcast(text, what=what)

    def compare_programs(self, meeting: Meeting) -> None:
        """Return when all processes have run the same operations until this meeting; once.

        Raises    JoinError, on every process, with the first operations that differ; StoppedError
                  where one has not come here.
        """
        if self.program.is_open:
            self.program.is_open = False
            if len(set(self.meet(meeting, self.program.digest))) > 1:
                compare(self.channel, self.program.lines)

    # In steps -----------------------------------------------------------------------------------

    def meet(self, meeting: Meeting, text: str | bytes = "") -> list[str]:
        """The texts of all processes, which must have come to the same meeting.

        Raises    StoppedError, on every process, where one has not.
        """
        rows = self.meet_bytes(meeting, text.encode() if isinstance(text, str) else text)
        return [row.decode() for row in rows]

    def meet_bytes(self, meeting: Meeting, content: bytes) -> list[bytes]:
        """As `meet`, of bytes."""
        gathered = self.channel.gather(f"{meeting}\n".encode() + content, str(meeting))
        rows = [row.partition(b"\n")[::2] for row in gathered]
        # Nothing is sent by the barrier at the end of a program.
        places = [where.decode() or END for where, _ in rows]
        for rank, where in enumerate(places):
            if where != places[0]:
                first, other = (0, rank) if places[0] == END else (rank, 0)
                self.stop(
                    first,
                    f"{self.name(first)} has come to {places[first]}, {self.name(other)} to "
                    f"{places[other]}; run the same program on all processes, with the same "
                    "number of batches",
                )
        return [text for _, text in rows]

    def agree(self, meeting: Meeting, lines: Sequence[str]) -> None:
        """Return when all processes have these lines at this meeting.

        Raises    StoppedError, on every process, with the first lines that differ.
        """
        rows = [text.splitlines() for text in self.meet(meeting, "\n".join(lines))]
        for rank, row in enumerate(rows):
            if row != rows[0]:
                here, first = (
                    next((line for line in a if line not in b), "nothing more")
                    for a, b in ((row, rows[0]), (rows[0], row))
                )
                self.stop(
                    rank,
                    f"{self.name(rank)} has {here}, {self.name(0)} {first}, in step "
                    f"{meeting.step}; run the same program on all processes, with the same "
                    "parameters in each step",
                )

    def check(self, what: str, digest: str, step: int, place: str | None = None) -> None:
        """Return when all processes have this digest of what they are to share after a step.

        what      weights, variables.
        place     of the program; default: what.

        Raises    StoppedError, on every process, with both digests.
        """
        rows = self.meet(Meeting(place or what, step), digest)
        for rank, row in enumerate(rows):
            if row != rows[0]:
                self.stop(
                    rank,
                    f"{self.name(rank)} has {what} with digest {row[:12]}, {self.name(0)} "
                    f"{rows[0][:12]}, after step {step}; they must be equal: change them on all "
                    "processes alike",
                )

    @contextmanager
    def telling(self, step: Callable[[], int | None]) -> Iterator[None]:
        """A process that is lost inside is told with the step and the last checkpoint.

        step    that the program stands at; None where it has none.
        """
        try:
            yield
        except StoppedError as stop:
            at, saved = step(), "there is no checkpoint"
            if at is None:
                raise
            if self.saved is not None:
                saved = f"the last checkpoint is step {self.saved}"
            raise StoppedError(at_step(stop.reason, at, saved)) from None

    @contextmanager
    def running(self, step: Callable[[], int | None]) -> Iterator[None]:
        """As `telling`, around a program: the others are told of an error inside."""
        with self.telling(step):
            try:
                yield
            except StoppedError:
                raise
            except BaseException as error:
                self.channel.transport.abort(failure(error, self.rank, self.name(self.rank)))
                raise

    def end(self) -> None:
        """Wait until every process has come to its end, and leave.

        Raises    StoppedError where another process has failed.
        """
        leave(self.channel)


def join(cluster: Cluster, lines: Sequence[str], *, ends: bool = True) -> Members:
    """Join the other processes of a cluster; returns when all have joined.

    lines     what must be equal on all, as "name: value".
    ends      the program is left alone at its end: the others are told then.

    Raises    JoinError for a process that does not answer or is of another run.
    """
    if cluster.size == 1:
        return Members(Channel(local_transports(1)[0]))
    channel = Channel(connect(cluster, "\n".join(lines)))
    if ends:
        end_with_program(channel)
    return Members(channel)
