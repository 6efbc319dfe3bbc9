"""Channel: labelled pieces over a transport, checked in one place, and what needs no addition.

Every piece that arrives is compared with the one that is expected; anything else stops the
training on all workers with a sentence that names the sender. Collectives are numbered, the same
on every worker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from ipu.members.pieces import BYTES, Label, PieceError, pack, read, unpack
from ipu.members.transport import Kind, Reason, StoppedError, Transport

__all__ = ["Channel"]

T = TypeVar("T")


class Channel:
    """Pieces between the workers of one training.

    step      t, which goes into every piece.
    sent      bytes of payload sent to others so far.

    >>> from ipu.members.local_transport import run_local
    >>> run_local(3, lambda t: Channel(t).gather(bytes([t.rank])))[1]
    [b'\\x00', b'\\x01', b'\\x02']
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.rank, self.size = transport.rank, transport.size
        self.others = [rank for rank in range(self.size) if rank != self.rank]
        self.step = 0
        self.sent = 0
        self._collective = 0

    def begin(self) -> int:
        """The number of the next collective."""
        self._collective += 1
        return self._collective

    # Pieces ---------------------------------------------------------------------------------

    def send(self, to: int, label: Label, payload: bytes | memoryview) -> None:
        """Send codes to another worker."""
        self.sent += len(payload)
        self.transport.send(to, pack(label, payload))

    def receive(self, sender: int, label: Label, width: int, tensor: str) -> memoryview:
        """The codes that another worker sends next; they must be these.

        width, tensor    bytes of an element, and what the codes are of, for messages.

        Raises    StoppedError, on every worker, for any other piece.
        """
        message = self.transport.receive(sender)
        return self._checked(sender, tensor, lambda: unpack(message, label, width))

    def stop(self, kind: Kind, rank: int, text: str) -> NoReturn:
        """Stop the training on every worker.

        Raises    StoppedError, always.
        """
        reason = Reason(kind, rank, text)
        self.transport.abort(reason)
        raise StoppedError(reason)

    def _checked(self, sender: int, tensor: str, check: Callable[[], T]) -> T:
        try:
            return check()
        except PieceError as error:
            who = self.transport.describe(sender)
            self.stop(Kind.DAMAGED, sender, f"{who} sent a wrong piece of {tensor}: {error}")

    # Bytes ----------------------------------------------------------------------------------

    def gather(self, content: bytes, what: str = "bytes", *, equal: bool = False) -> list[bytes]:
        """The bytes of every worker, on every worker.

        equal    they have one length; else they may differ.

        Raises   StoppedError, on every worker, for a piece that is not the expected one.
        """
        label = Label(BYTES, len(content), self.step, self.begin())
        for other in self.others:
            self.send(other, label, content)
        return [
            content if rank == self.rank else self._receive_bytes(rank, label, what, equal=equal)
            for rank in range(self.size)
        ]

    def broadcast(self, content: bytes, root: int = 0, what: str = "bytes") -> bytes:
        """The bytes of one worker on all of them."""
        label = Label(BYTES, len(content), self.step, self.begin())
        if self.rank != root:
            return self._receive_bytes(root, label, what)
        for other in self.others:
            self.send(other, label, content)
        return content

    def barrier(self, what: str = "barrier") -> None:
        """Return when every worker has come here, or somewhere else.

        A worker that is elsewhere in the program sends bytes instead. They are not looked at here:
        it is the other one that can name both places.
        """
        self.gather(b"", what)

    def _receive_bytes(self, sender: int, label: Label, what: str, *, equal: bool = False) -> bytes:
        message = self.transport.receive(sender)

        def check() -> memoryview:
            expected = label
            if not equal:
                expected = label._replace(elements=read(message)[0].elements)
            return unpack(message, expected, 1)

        return bytes(self._checked(sender, what, check))
