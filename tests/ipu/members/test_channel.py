"""Labelled pieces over a transport (law: anything else than expected names the sender)."""

from __future__ import annotations

import pytest

from ipu.members.channel import Channel
from ipu.members.local_transport import local_transports, run_local
from ipu.members.pieces import HEADER, Label, pack
from ipu.members.transport import Kind, StoppedError

LABEL = Label("binary16", 2, 1, 1)


def test_bytes_of_all_workers_on_all_workers():
    def work(transport):
        channel = Channel(transport)
        gathered = channel.gather(bytes([channel.rank]) * channel.rank)
        channel.barrier()
        return gathered, channel.broadcast(bytes([channel.rank]), root=2), channel.sent

    for gathered, root, sent in run_local(3, work):
        assert gathered == [b"", b"\x01", b"\x02\x02"]
        assert root == b"\x02"
        assert sent in (0, 2, 6)


WRONG = {
    "format is bfloat16, expected binary16": pack(LABEL._replace(format="bfloat16"), bytes(4)),
    "elements is 3, expected 2": pack(LABEL._replace(elements=3), bytes(6)),
    "step is 0, expected 1": pack(LABEL._replace(step=0), bytes(4)),
    "it is damaged": pack(LABEL, bytes(4))[:-1] + b"x",
    "0 bytes are no piece": b"",
}


@pytest.mark.parametrize("sentence", WRONG)
def test_a_wrong_piece_stops_everybody_and_names_the_sender(sentence):
    first, second = local_transports(2)
    second.send(0, WRONG[sentence])
    with pytest.raises(StoppedError, match=f"worker 1 sent a wrong piece of a/b: .*{sentence}"):
        Channel(first).receive(1, LABEL, 2, "a/b")
    with pytest.raises(StoppedError) as stop:
        second.receive(0)
    assert stop.value.reason[:2] == (Kind.DAMAGED, 1)


def test_workers_that_count_other_collectives_are_noticed():
    first, second = (Channel(transport) for transport in local_transports(2))
    second.begin()
    second.send(0, Label("bytes", 1, 0, second.begin()), b"x")
    with pytest.raises(StoppedError, match="wrong piece of losses: collective is 2, expected 1"):
        first.gather(b"", "losses")


def test_bytes_of_another_step_are_noticed():
    first, second = (Channel(transport) for transport in local_transports(2))
    second.step = 1
    second.send(0, Label("bytes", 0, 1, 1), b"")
    with pytest.raises(StoppedError, match="step is 1, expected 0"):
        first.barrier()


@pytest.mark.parametrize(
    ("elements", "sentence"),
    [(3, "elements is 3, expected 2"), (2, "3 bytes, expected 2: 2 elements of bytes")],
)
def test_bytes_of_another_length_are_noticed(elements, sentence):
    first, second = (Channel(transport) for transport in local_transports(2))
    second.send(0, Label("bytes", elements, 0, 1), b"abc")
    with pytest.raises(StoppedError, match=f"worker 1 sent a wrong piece of losses: {sentence}"):
        first.gather(b"ab", "losses", equal=True)


def test_bytes_that_are_not_as_many_as_their_label_says_are_noticed():
    first, second = (Channel(transport) for transport in local_transports(2))
    second.send(0, Label("bytes", 2, 0, 1), b"abc")
    with pytest.raises(StoppedError, match="3 bytes, expected 2: 2 elements of bytes"):
        first.gather(b"", "losses")


def test_headers_are_not_counted_as_sent():
    first, second = (Channel(transport) for transport in local_transports(2))
    first.send(1, LABEL, bytes(4))
    assert first.sent == 4
    assert len(second.transport.receive(0)) == HEADER + 4
