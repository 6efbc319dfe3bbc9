"""Splitting K shortens the chain of half partials (law)."""

from __future__ import annotations

from ipu.experiments.sums import k_split
from tests.experiments.figures import assert_panels


def test_splitting_k_shortens_the_chain_of_half_partials():
    result = k_split.run(quick=True, seed=0)
    error = result.column("rms", partials="half partials")
    cycles = result.column("cycles", partials="half partials")
    assert error[0] > 2 * error[-1]
    assert cycles[0] > 10 * cycles.min()
    assert result.column("exchange_bytes", tiles=1).tolist() == [0, 0]
    assert_panels(k_split.plot(result), 3)
