"""Arguments of plans are read into one form or refused (golden)."""

from __future__ import annotations

import re

import pytest

from ipu.plan.arguments import OFFLOADS, read_mapping, read_offload, read_stages


def one(x):
    return x


def two(x, y):
    return x


def optional(x, y=None, *, z=1):
    return x


def anything(*x):
    return x


def test_stages_become_tuples():
    assert read_stages([one, [one, optional], two]) == (one, (one, optional), two)
    assert read_stages((one,)) == (one,)
    assert read_stages([[one]]) == (one,)
    assert read_stages(read_stages([one, [one, one]])) == (one, (one, one))


def test_stages_whose_arguments_are_open_are_not_compared():
    assert read_stages([[two, anything, max]]) == ((two, anything, max),)


def test_mappings_become_tuples():
    positions = ((one,), (one, one))
    assert read_mapping([0, [1, 2]], positions) == (0, (1, 2))


def test_offloads_are_sets_of_names():
    assert read_offload("state", True) == {"state"}
    assert read_offload(OFFLOADS, True) == set(OFFLOADS)
    assert read_offload((), False) == set()


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: read_stages(one), TypeError, "is not a list of callables; use [<function one"),
        (lambda: read_stages([]), ValueError, "stages=[] is empty; give one callable for each"),
        (lambda: read_stages([one, 3]), TypeError, "stages[1] holds 3, which is not callable"),
        (lambda: read_stages([[one, [one]]]), TypeError, "stages[0] holds [<function one"),
        (lambda: read_stages([one, []]), ValueError, "stages[1] is empty; give one callable for"),
        (
            lambda: read_stages([one, [one, two]]),
            ValueError,
            "stages[1]: concurrent stages take other arguments: (x) and (x, y); every one gets all "
            "outputs of the stage before",
        ),
        (
            lambda: read_mapping([0, 1], ((one,), (one, one))),
            ValueError,
            "mapping[1]=[1] has 1 IPUs for 2 concurrent stages; give every one its own",
        ),
        (lambda: read_mapping([0, -1], ()), ValueError, "holds -1; use numbers of IPUs, 0 …"),
        (lambda: read_mapping([True], ()), ValueError, "mapping=[True] holds True; use numbers"),
        (lambda: read_mapping([0, ["a"]], ()), ValueError, "holds 'a'; use numbers of IPUs"),
        (
            lambda: read_offload(["momentum", "state"], True),
            ValueError,
            "offload has momentum; use some of state, activations, accumulators, weights",
        ),
        (
            lambda: read_offload({"activations"}, False),
            ValueError,
            "offload=activations needs remote buffers, and remote_buffers=False; use offload=None",
        ),
    ],
)
def test_other_arguments_are_refused(call, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        call()
