"""Streams that share an operation: differential (Python's integers), law, refusals."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import fpsim as fp
from fpsim.judge.oracle import spawn_seed
from fpsim.state.streams import XoroshiroStreams
from tests.fpsim.kernels.random.recurrence import dealt

#: Three groups of two.
STATES = [[(1 + 2 * k, 2**63 | 99 << k) for k in pair] for pair in ((0, 1), (2, 3), (4, 5))]


def streams(states=STATES):
    return XoroshiroStreams(np.array(states, np.uint64))


def words(states):
    return [[list(state) for state in group] for group in states]


@pytest.mark.parametrize("n", [0, 1, 5, 12, 26, 101])
def test_one_stream_is_the_generator_of_a_context(n):
    one = fp.Xoroshiro128aox(state=(5, 6))
    shared = streams([[(5, 6)]])
    for shape, places in (((n,), 1), ((3, n), 3), ((n,), 1)):
        drawn = shared.draw(0, shape, 16, places)
        assert drawn.tolist() == one.draw(0, shape, 16, places).tolist()
        one.advance()
        shared.advance()
        assert shared.states.tolist() == [[list(one.state)]]


def test_only_advance_moves_on():
    source = streams()
    first = source.draw(0, (2, 9), 16)
    assert first.dtype == np.uint32
    assert source.draw(1, (2, 9), 13).tolist() == first.tolist() == dealt(STATES, 18)[0][0]
    assert source.states.tolist() == words(STATES)
    source.advance()
    after = dealt(STATES, 18)[1]
    assert source.states.tolist() == words(after)
    assert source.draw(2, (18,), 16).tolist() == dealt(after, 18)[0][0]


def context(bits, r=16):
    return fp.Context(fp.BINARY16, rounding=fp.SR(r), bits=bits)


def test_operations_take_the_low_digits_of_the_dealt_numbers_one_after_the_other():
    """Elementwise, a sum, a mean and products: as with these integers handed over in their layout.

    The layouts are (places, outputs); a stream keeps its outputs in every place.
    """
    r, states = 5, STATES
    rng = np.random.default_rng(3)
    x, y = fp.Context(fp.BINARY16).array(rng.normal(size=(5, 7))), rng.normal(size=(7, 3))
    y = fp.Context(fp.BINARY16).array(y)
    calls = [
        (lambda c: c.multiply(x, 0.3), (5, 7), 1),
        (lambda c: c.sum(x, 1), (6, 5), 6),
        (lambda c: c.mean(x, 0), (5, 7), 5),
        (lambda c: c.matmul(x, y), (14, 5, 3), 14),
    ]
    layouts = []
    for _, shape, places in calls:
        numbers, states = dealt(states, int(np.prod(shape)) // places, places)
        layouts.append(np.array(numbers).reshape(shape) & (1 << r) - 1)
    shared, replayed = context(streams(), r), context(fp.Replay(layouts), r)
    for call, _, _ in calls:
        assert call(shared).codes().tolist() == call(replayed).codes().tolist()
    assert shared.core.source.states.tolist() == words(states)


def test_an_operation_that_traps_draws_again():
    c = context(streams())
    c.traps = fp.Flags.OVERFLOW
    x = c.wrap(np.full(9, 60000, np.float32))
    with pytest.raises(fp.FloatingPointTrap):
        c.multiply(x, x)
    assert c.core.source.states.tolist() == words(STATES)
    c.traps = fp.Flags.NONE
    c.multiply(x, 0.3)
    assert c.core.source.states.tolist() == words(dealt(STATES, 9)[1])


def test_children_are_those_of_every_word_and_pickles_go_on():
    parent = streams()
    child = parent.spawn(3)
    expected = [[[spawn_seed(w, 3) for w in state] for state in group] for group in STATES]
    assert child.states.tolist() == expected
    assert parent.states.tolist() == words(STATES)
    copied = pickle.loads(pickle.dumps(parent))
    assert copied.draw(0, (30,), 16).tolist() == parent.draw(0, (30,), 16).tolist()
    assert repr(parent) == "XoroshiroStreams(3 x 2)"


def test_states_are_copied_and_can_be_assigned():
    arguments = np.array(STATES, np.uint64)
    source = XoroshiroStreams(arguments)
    arguments[...] = source.states[...] = 1
    assert source.states.tolist() == words(STATES)
    source.draw(0, (30,), 16)
    source.states = streams().states + np.uint64(2)
    source.advance()  # what was drawn before counts no more
    assert source.states.tolist() == (np.array(STATES, np.uint64) + np.uint64(2)).tolist()


def test_impossible_states_and_bits_are_refused():
    with pytest.raises(TypeError, match="no array of uint64"):
        XoroshiroStreams(np.ones((1, 1, 2)))
    for shape in ((2,), (1, 2), (1, 1, 3), (0, 6, 2)):
        with pytest.raises(ValueError, match=r"give \(groups, members, 2\)"):
            XoroshiroStreams(np.ones(shape, np.uint64))
    with pytest.raises(ValueError, match="never leaves itself"):
        streams([[(1, 2), (0, 0)]])
    with pytest.raises(ValueError, match="bits=17 is more than a lane"):
        streams().draw(0, (4,), 17)
    with pytest.raises(ValueError, match="bits=17 is more than a lane"):
        context(streams(), 17).array([1.1])
