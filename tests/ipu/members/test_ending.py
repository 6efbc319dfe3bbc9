"""The end of programs: the others wait for it, or are told why it came (golden)."""

from __future__ import annotations

import sys

import pytest

from ipu.members import ending
from ipu.members.channel import Channel
from ipu.members.local_transport import local_transports, run_local
from ipu.members.transport import Kind, StoppedError


def test_all_wait_for_the_last():
    order = []

    def work(transport):
        channel = Channel(transport)
        if transport.rank == 1:
            transport.receive(0)
        else:
            transport.send(1, b"go on")
        order.append("ends")
        ending.leave(channel)
        order.append("left")

    run_local(2, work)
    assert order == ["ends", "ends", "left", "left"]


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [(KeyError("theirs"), Kind.FAILED, "worker 0 stopped: KeyError: 'theirs'"),
     (KeyboardInterrupt(), Kind.INTERRUPTED, "worker 0 stopped: KeyboardInterrupt")],
)
def test_others_are_told_of_an_error(monkeypatch, error, kind, sentence):
    first, second = local_transports(2)
    monkeypatch.setattr(sys, "last_value", error, raising=False)
    ending._at_exit(Channel(first))
    with pytest.raises(StoppedError) as stop:
        second.receive(0)
    assert stop.value.reason == (kind, 0, sentence)


def test_a_process_that_comes_to_its_end_hears_of_the_others_failure(monkeypatch, capsys):
    first, second = local_transports(2)
    monkeypatch.delattr(sys, "last_value", raising=False)
    second.close()
    ending._at_exit(Channel(first))
    assert capsys.readouterr().err == "fpsim: worker 1 is gone\n"


@pytest.mark.parametrize("end", [ending.leave, lambda channel: ending.leave_all()])
def test_what_is_done_before_the_end_is_done_once(monkeypatch, end):
    (transport,) = local_transports(1)
    channel, calls = Channel(transport), []
    monkeypatch.setattr(ending, "_open", [channel])
    ending.before_end(channel, lambda: calls.append("first"))
    ending.before_end(channel, lambda: calls.append("second"))
    end(channel)
    ending.leave_all()
    ending._at_exit(channel)
    assert calls == ["first", "second"]


def test_a_program_that_is_left_with_its_status_hears_of_the_others_failure(monkeypatch):
    first, second = local_transports(2)
    second.close()
    monkeypatch.setattr(ending, "_open", [Channel(first)])
    with pytest.raises(StoppedError, match="worker 1 is gone"):
        ending.leave_all()


def test_processes_are_named_by_the_environment_or_by_whom_they_have_joined(monkeypatch):
    for name in ("TF_CONFIG", "POPDIST_NUM_INSTANCES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ending, "_open", [])
    assert ending.name_of_process() is None
    cluster = '{"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}, '
    monkeypatch.setenv("TF_CONFIG", cluster + '"task": {"type": "worker", "index": 1}}')
    assert ending.name_of_process() == "worker-1"
    monkeypatch.setenv("TF_CONFIG", "{")
    assert ending.name_of_process() is None
    ending._open.append(Channel(local_transports(3)[2]))
    assert ending.name_of_process() == "worker-2"
