"""Benchmarks of queues and loops run what they say (law)."""

from __future__ import annotations

import gc

from ipu.experiments.bench.feed import ELEMENTS, cases
from ipu.experiments.bench.timing import Size
from ipu.feed.counters import record_launches


def test_every_case_is_a_loop_of_so_many_iterations():
    expected = {"feed repeat": (0, 0), "feed infeed": (1, 0), "feed outfeed": (0, 1)}
    seen = []
    for case in cases(Size(1, 1), quick=True):
        call = case.prepare()
        with record_launches() as record:
            call()
        counters, (into, out) = record.counters, expected[case.topic]
        assert (counters.launches, counters.iterations) == (1, case.n)
        assert (counters.elements_in, counters.elements_out) == (into * case.n, out * case.n)
        if case.reference is not None:
            case.reference()
            moved = counters.bytes_in + counters.bytes_out
            assert moved == case.n * ELEMENTS[case.data][0]
        seen.append((case.topic, case.data))
    assert len(seen) == len(set(seen)) == 2 + 2 * len(ELEMENTS)
    del call
    gc.collect()
