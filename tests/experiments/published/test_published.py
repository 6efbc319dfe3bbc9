"""The claims of the literature come out with the verdicts that we know (golden)."""

from __future__ import annotations

import pytest

from fpsim.chop import MatlabRandom
from ipu.experiments.lab.catalogue import catalogue, find
from ipu.experiments.published.claim import tables, verdicts

YES, NO, OPEN = "REPRODUCED", "NOT REPRODUCED", "CANNOT BE TOLD"

#: Each file with its verdicts, in a quick run.
KNOWN = {
    "half_matrix_products": [YES],
    "biased_attention": [YES, YES, OPEN],
    "rump_polynomial": [NO, YES, YES, YES, OPEN],
    "bf16_steps": [NO, YES],
    "split_significands": [YES, OPEN],
    "wrong_limits": [YES, YES],
    "chunked_sums": [OPEN],
}


def test_every_claim_of_the_room_is_known():
    assert {e.name for e in catalogue().values() if e.room.endswith(".published")} == set(KNOWN)


@pytest.mark.parametrize("name", KNOWN)
def test_a_claim_has_its_verdict_table_and_figure(name):
    experiment = find(name)
    result = experiment.run(quick=True, seed=0)
    assert list(verdicts(result).values()) == KNOWN[name]
    assert [table.title.rpartition(": ")[2] for table in tables(result)] == KNOWN[name]
    figure = experiment.plot(result)
    assert figure is not None
    for axes in figure.axes:
        assert axes.get_xlabel()
        assert axes.get_title(loc="left")


@pytest.mark.source("comments of matmult.m, whose seed is 1")
def test_the_stream_is_matlabs():
    random = MatlabRandom(1)
    assert random.rand(1).shape == (1, 1)
    assert MatlabRandom(1).rand(2, 3)[:, 0].tolist() == MatlabRandom(1).rand(6, 1)[:2, 0].tolist()
    assert sorted(set(MatlabRandom(3).randi(2, 10, 10).reshape(-1).tolist())) == [1, 2]
    with pytest.raises(ValueError, match="seed=0 has no stream that is known"):
        MatlabRandom(0)
