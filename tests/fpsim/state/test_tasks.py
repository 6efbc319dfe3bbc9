"""Tasks: done once, by whoever is free; taken back, waited for, forgotten by a fork (**law**)."""

from __future__ import annotations

import gc
import multiprocessing
import time
import weakref
from collections.abc import Iterator
from threading import Event, Thread, get_ident

import pytest

from fpsim.state import tasks
from fpsim.state.tasks import Task, idle, keep_helpers, offer

#: Seconds after which a thread that waits for another one gives up.
PATIENCE = 20


@pytest.fixture
def one_helper() -> Iterator[None]:
    before = tasks._helpers
    keep_helpers(1)
    yield
    keep_helpers(before)


@pytest.fixture
def no_helper() -> Iterator[None]:
    before = tasks._helpers
    keep_helpers(0)
    wait_until(lambda: idle() == 0)
    yield
    keep_helpers(before)


def wait_until(condition) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


class Block:
    """Keeps a helper busy until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = Event(), Event()
        self.task = offer(self)

    def __call__(self) -> int:
        self.begun.set()
        assert self.let_go.wait(PATIENCE)
        return 7


def test_a_helper_does_what_is_offered_while_its_owner_goes_on(one_helper):
    task = offer(get_ident)
    wait_until(lambda: task.ended)
    assert task.finish() != get_ident()
    assert task.finish() == task.wait()


def test_what_nobody_has_begun_its_owner_does(no_helper):
    task = offer(get_ident)
    assert not task.ended
    assert task.finish() == get_ident()


def test_work_is_done_once(no_helper):
    done = []
    task = offer(lambda: done.append(1))
    task.run()
    task.run()
    task.finish()
    assert done == [1]
    assert not task.withdraw()


def test_withdrawn_work_is_never_done_and_frees_its_arrays(one_helper):
    block = Block()
    assert block.begun.wait(PATIENCE)

    class Memory:
        pass

    memory = Memory()
    reference = weakref.ref(memory)
    task = offer(lambda memory=memory: pytest.fail(f"done with {memory}"))
    assert task.withdraw()
    del memory
    gc.collect()
    assert reference() is None
    assert not task.withdraw()
    assert not block.task.withdraw()
    block.let_go.set()
    assert block.task.finish() == 7
    wait_until(lambda: idle() == 1)  # the helper has passed the withdrawn one


def test_an_owner_who_waits_does_what_others_have_offered(one_helper):
    block = Block()
    assert block.begun.wait(PATIENCE)

    def other() -> int:
        block.let_go.set()  # else the block would wait for ever
        return get_ident()

    task = offer(other)
    assert block.task.finish() == 7
    assert task.finish() == get_ident()


@pytest.mark.parametrize("fixture", ["one_helper", "no_helper"])
def test_an_error_reaches_every_wait(request, fixture):
    request.getfixturevalue(fixture)

    def fail() -> int:
        raise ZeroDivisionError("here")

    task = offer(fail)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="here"):
            task.finish()
    assert offer(lambda: 3).finish() == 3


def test_a_helper_is_idle_from_its_start_and_whenever_its_outcome_is_there(no_helper):
    keep_helpers(1)
    assert idle() == 1
    for _ in range(300):
        task = offer(int)
        while not task.ended:
            time.sleep(0)
        assert idle() == 1


def test_what_precedes_the_end_is_done_while_the_owner_waits():
    task, ends = Task(int), []
    assert task.run(lambda: ends.append(task.ended))
    assert ends == [False]
    assert task.ended
    assert not task.run(lambda: ends.append(True))
    assert ends == [False]


def test_a_helper_that_has_not_run_yet_is_idle(no_helper, monkeypatch):
    monkeypatch.setattr(tasks.Thread, "start", lambda _: None)
    monkeypatch.setattr(tasks, "_asleep", [])
    monkeypatch.setattr(tasks, "_helpers", 0)
    keep_helpers(2)
    assert idle() == 2


def test_helpers_beyond_the_number_wanted_end():
    before = tasks._helpers
    try:
        keep_helpers(3)
        wait_until(lambda: idle() == 3)
        keep_helpers(1)
        wait_until(lambda: idle() == 1)
        assert offer(lambda: 5).finish() == 5
    finally:
        keep_helpers(before)


def test_waiting_for_begun_work_leaves_the_end_of_a_helper_to_the_helper():
    """An owner that takes a helper's end from the queue puts it back."""
    before = tasks._helpers
    keep_helpers(1)
    block = Block()
    assert block.begun.wait(PATIENCE)
    keep_helpers(0)
    owner = Thread(target=block.task.finish)
    owner.start()
    block.let_go.set()
    owner.join(PATIENCE)
    assert not owner.is_alive()
    wait_until(lambda: idle() == 0)
    keep_helpers(before)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_process_has_a_queue_of_its_own(one_helper):
    def in_child() -> None:
        assert idle() == tasks._helpers == 0
        keep_helpers(1)
        assert offer(lambda: 4).finish() == 4

    child = multiprocessing.get_context("fork").Process(target=in_child)
    child.start()
    child.join(PATIENCE)
    child.kill()
    child.join()
    assert child.exitcode == 0


def test_a_task_alone_is_work_to_be_done_later():
    task = Task(lambda: 2)
    assert not task.ended
    assert task.finish() == 2
    assert task.ended
