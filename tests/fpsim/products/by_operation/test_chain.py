"""What a product rounded per operation is: law (flags that are up change no value)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.kernels.by_operation.general import CHAINS
from fpsim.products.by_operation.chain import Chain
from fpsim.products.by_operation.dispatch import multiply, rounding_places
from fpsim.records.settings import Settings
from fpsim.state.draws import NO_PLACES


def test_flags_are_looked_for_unless_they_are_up():
    chain = Chain(Settings(fp.BINARY16), "separate")
    assert chain.raised == fp.Flags.NONE
    assert chain == (Settings(fp.BINARY16), "separate", fp.Flags.NONE)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("raised", [fp.Flags.INEXACT, fp.Flags(31)])
def test_flags_that_are_up_change_no_value_and_hide_no_other(name, raised):
    rng = np.random.default_rng(1)
    half = fp.Context(fp.BINARY16)
    a, b = (half.array(rng.standard_normal(s) * 30).values.copy() for s in ((9, 40), (40, 17)))
    a[0] = 60000.0
    outcomes = []
    for earlier in (fp.Flags.NONE, raised):
        chain = Chain(Settings(fp.BINARY16), name, earlier)
        values, flags, element_flags = multiply(chain, a, b, (9, 17), NO_PLACES, watched=False)
        assert element_flags is None
        outcomes.append((values.tobytes(), fp.Flags(flags) | earlier))
    assert outcomes[0][0] == outcomes[1][0]
    assert outcomes[0][1] | raised == outcomes[1][1]


def test_each_chain_has_as_many_rounding_places_as_it_rounds():
    """A product and a sum; both at once; a product and four additions of Kahan's."""
    assert {name: rounding_places(name, 3) for name in CHAINS} == {
        "separate": range(6), "fused": range(3), "kahan": range(15),
    }
