"""Other tools are measured fairly, and take what they are given (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.records.rounding import RNE, RTP, RTZ, SR
from fpsim.state.threads import get_threads
from ipu.experiments.bench import arith
from ipu.experiments.bench import round as rounding
from ipu.experiments.bench.data import make
from ipu.experiments.bench.peers import rounding_peers
from ipu.experiments.bench.timing import Size, TimedCase, run

TINY = Size(n=300, repeats=1)


def test_a_tool_of_one_thread_is_measured_beside_one_thread():
    seen = []

    def call():
        seen.append(get_threads())

    (record,) = run([TimedCase("t", "f", lambda: call, call, 1, 1, alone=True)], 3)
    assert record.threads == 1
    assert set(seen) == {1}
    cases = [*rounding.cases(TINY, quick=True), *arith.cases(TINY, quick=True)]
    alone = {c.peer.split()[0] for c in cases if c.peer and c.alone}
    assert alone >= {"numpy", "ml_dtypes", "gfloat"}
    assert "torch" not in alone
    assert not any(c.alone for c in cases if c.peer is None)


@pytest.mark.parametrize("fmt", rounding.FORMATS, ids=str)
def test_every_tool_that_is_installed_takes_what_it_is_given(fmt):
    x, out = make("normal", 100), np.empty(100, np.float32)
    for mode in (RNE, RTZ, RTP, SR(13)):
        for _, prepare in rounding_peers(fmt, mode):
            prepare(x, out)()
