"""Workers as threads (law: messages arrive in order; a stop reaches everybody)."""

from __future__ import annotations

import threading
import time

import pytest

from ipu.members.local_transport import local_transports, run_local
from ipu.members.transport import Kind, Reason, StoppedError


def test_messages_arrive_in_the_order_of_their_sender():
    def work(transport):
        for other in range(transport.size):
            for number in range(50):
                if other != transport.rank:
                    transport.send(other, bytes([transport.rank, number]))
        return [
            transport.receive(other)
            for other in range(transport.size) if other != transport.rank
            for _ in range(50)
        ]

    for rank, received in enumerate(run_local(3, work)):
        others = [r for r in range(3) if r != rank]
        assert received == [bytes([other, n]) for other in others for n in range(50)]


def test_a_worker_that_fails_stops_the_others():
    reached = []

    def work(transport):
        if transport.rank == 1:
            raise KeyError("its own error")
        try:
            transport.receive(1)
        except StoppedError as stop:
            reached.append(stop.reason)
            raise

    with pytest.raises(KeyError, match="its own error"):
        run_local(3, work)
    assert [reason.rank for reason in reached] == [1, 1]
    assert "worker 1 stopped: 'its own error'" in reached[0].text


def test_nobody_waits_for_a_worker_that_has_left():
    first, second = local_transports(2)
    second.send(0, b"last")
    second.close()
    assert first.receive(1) == b"last"
    with pytest.raises(StoppedError, match="worker 1 is gone"):
        first.receive(1)


def test_the_first_reason_of_a_stop_holds():
    first, second = local_transports(2)
    first.abort(Reason(Kind.FAILED, 0, "first"))
    second.abort(Reason(Kind.FAILED, 1, "second"))
    for transport in (first, second):
        with pytest.raises(StoppedError, match="first"):
            transport.send(1 - transport.rank, b"")


def test_no_workers_are_refused():
    with pytest.raises(ValueError, match="size=0: use 1 worker or more"):
        local_transports(0)


def test_the_cause_is_raised_where_those_who_heard_of_it_stopped_first():
    heard = threading.Event()

    def work(transport):
        if transport.rank == 0:
            try:
                transport.receive(1)
            finally:
                heard.set()
        transport.abort(Reason(Kind.FAILED, 1, "worker 1 stopped: bad data"))
        assert heard.wait(30)
        time.sleep(0.05)  # worker 0 ends meanwhile
        raise ValueError("bad data")

    with pytest.raises(ValueError, match="bad data"):
        run_local(2, work)
