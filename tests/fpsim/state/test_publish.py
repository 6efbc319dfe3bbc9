"""The order in which an operation leaves its outcome: law, corners, refusals."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.records.flags import Flags, FloatingPointTrap
from fpsim.records.settings import Settings
from fpsim.state.bits import Philox, Replay
from fpsim.state.publish import broadcast_operands, check_out, fold, no_operands, publish
from fpsim.state.state import State

F32 = np.dtype(np.float32)


def state(traps=Flags.NONE, *, count=False, rounding="SR", bits=None):
    return State(Settings(fp.BINARY16, rounding), bits or Philox(1), traps, count=count)


def outcome(*flags):
    element_flags = np.array(flags, np.uint8)
    return np.arange(1, len(flags) + 1, dtype=np.float32), fold(element_flags), element_flags


def test_a_published_operation_leaves_flags_counts_number_and_result():
    s, target = state(count=True), np.zeros(2, np.float32)
    values, flags, element_flags = outcome(1, 4)
    s.flags = Flags.DIVBYZERO
    result = publish(s, "add", values, flags, element_flags, target=target, advances=True)
    assert result is target
    assert target.tolist() == [1.0, 2.0]
    assert s.flags == Flags.DIVBYZERO | Flags.OVERFLOW | Flags.INEXACT
    assert s.operation == 1
    assert s.counts["", "add"]["OVERFLOW"] == 1


def test_a_trapped_operation_leaves_its_flags_alone():
    source = Replay([[1, 1], [0, 0]])
    s, target = state(Flags.OVERFLOW, count=True, bits=source), np.zeros(2, np.float32)
    values, flags, element_flags = outcome(1, 5)
    with pytest.raises(FloatingPointTrap):
        publish(s, "add", values, flags, element_flags, target=target, advances=True)
    assert s.flags == Flags.OVERFLOW | Flags.INEXACT
    assert target.tolist() == [0.0, 0.0]
    assert s.operation == 0
    assert not s.counts
    assert source.draw(0, (2,), 1).tolist() == [1, 1]


def test_a_trap_shows_the_first_guilty_element_and_all_flags_of_the_operation():
    s = state(Flags.OVERFLOW | Flags.INVALID)
    element_flags = np.array([[1, 2, 0], [1, 16, 5]], np.uint8)
    x, y = np.float32([[1.0], [2.0]]), np.float32([10.0, 20.0, 30.0])
    operands = broadcast_operands([x, y], element_flags.shape)
    with pytest.raises(FloatingPointTrap) as caught:
        publish(s, "add", element_flags, fold(element_flags), element_flags, operands)
    trap = caught.value
    assert (trap.operation, trap.index) == ("add", (1, 1))
    assert trap.flags == Flags(23)
    assert trap.operands == (2.0, 20.0)
    assert trap.dump == s.dump()
    assert "OVERFLOW" in trap.dump  # raised before the state was shown


def test_flags_that_are_not_armed_pass():
    s = state(Flags.INVALID)
    values, flags, element_flags = outcome(1, 2, 4, 8)
    assert publish(s, "add", values, flags, element_flags) is values
    assert s.flags == Flags(15)


def test_flags_that_were_up_before_do_not_trap():
    s = state(Flags.INEXACT)
    s.flags = Flags.INEXACT
    values, flags, element_flags = outcome(0, 2)
    publish(s, "add", values, flags, element_flags)
    assert s.flags == Flags.INEXACT | Flags.UNDERFLOW


@pytest.mark.parametrize("advances", [False, True])
def test_only_an_operation_with_random_bits_has_a_number(advances):
    s = state()
    publish(s, "add", *outcome(0)[:2], advances=advances)
    assert s.operation == int(advances)


def test_results_of_other_types_have_neither_zeros_nor_subnormals():
    s = state(count=True)
    truth, element_flags = np.array([False, True]), np.zeros(2, np.uint8)
    publish(s, "less", truth, 0, element_flags, in_format=False)
    assert (s.counts["", "less"]["results"], s.counts["", "less"]["zeros"]) == (2, 0)


def test_the_native_reference_raises_nothing():
    s = State(Settings(fp.BINARY64), Philox(), Flags.NONE, count=False)
    target = np.zeros(1)
    assert publish(s, "add", np.ones(1), 31, target=target, advances=True) is target
    assert (s.flags, s.operation, target[0]) == (Flags.NONE, 0, 1.0)


def test_a_result_that_is_the_target_already_is_not_copied():
    values = np.float32([1.0, 2.0])
    values.flags.writeable = False
    assert publish(state(), "add", values, 0, target=values) is values


@pytest.mark.parametrize(
    ("out", "kind", "message"),
    [
        ([0.0, 0.0], TypeError, "not an ndarray"),
        (np.zeros(2), TypeError, "dtype float64"),
        (np.zeros(3, np.float32), ValueError, r"shape \(3,\).*shape \(2,\)"),
        (np.zeros((1, 2), np.float32), ValueError, "shape"),
        (np.broadcast_to(np.float32(0), 2), ValueError, "read-only"),
    ],
)
def test_an_output_that_cannot_take_the_result_is_refused(out, kind, message):
    with pytest.raises(kind, match=message):
        check_out(out, (2,), F32)


def test_an_output_may_be_an_operand_and_no_shifted_view_of_one():
    memory = np.zeros(8, np.float32)
    x = memory[2:6]
    check_out(x, (4,), F32, [x])
    check_out(memory[2:6], (4,), F32, [x])  # another view of the same elements
    check_out(memory[4:], (4,), F32, [memory[:4]])
    check_out(memory[::2], (4,), F32, [memory[1::2]])  # interleaved, no element shared
    for shifted in (memory[1:5], memory[3:7], x[::-1], memory[::2]):
        with pytest.raises(ValueError, match="overlaps an operand"):
            check_out(shifted, (4,), F32, [x])
    with pytest.raises(ValueError, match="overlaps an operand"):
        check_out(memory[:4], (4,), F32, [np.zeros(4, np.float32), memory[:1]])


def test_flags_of_elements_fold_into_one():
    assert fold(np.array([[1, 2], [16, 0]], np.uint8)) == 19
    assert fold(np.array(8, np.uint8)) == 8
    assert fold(np.zeros((0, 4), np.uint8)) == 0
    assert no_operands((0,)) == ()


@pytest.mark.parametrize("size", [1, 4096, 4097, 10_000])
def test_flags_of_one_element_among_many_are_seen_in_any_layout(size):
    flags = np.zeros((size, 2), np.uint8, order="F")
    assert fold(flags) == fold(flags[:, 0]) == 0
    flags[-1, -1] = 20
    assert fold(flags) == fold(flags[::-1, 1]) == 20
