"""Figures of runs of layers: by hand (golden), one by one against tables (differential)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu.plan.chain import Activation, ChainLayer, ChainRanges, LayerChain
from ipu.plan.memory import Holding, StageFigures
from ipu.plan.plan import Plan
from tests.ipu.plan.chains import chain_of

#: x → a → b → c, where c also takes what a gave: a skip connection over b.
SKIP = LayerChain(
    [ChainLayer("a", 1, 2, 7, 0, ("w",)), ChainLayer("b", 3, 4, 9), ChainLayer("c", 5, 6, 8)],
    [Activation(100, -1, 0, 0), Activation(10, 0, 2, 0), Activation(1, 1, 2, -1)],
    {"w": Holding(40, 20, (40,), 4, "a/w")}, infeed_bytes=100, outfeed_bytes=4, update_cycles=9,
)


def test_a_skip_connection_crosses_every_cut_below_it():
    assert [SKIP.crossing(cut) for cut in range(4)] == [100, 10, 11, 0]
    first, second = SKIP.stages((1,))
    assert (first.output_bytes, second.input_bytes) == (10, 10)
    assert [stage.output_bytes for stage in SKIP.stages((2,))] == [11, 0]


def test_a_stage_keeps_what_it_receives_and_what_backward_needs_of_its_own():
    whole = SKIP.stages(())[0]
    assert whole.saved_bytes == 100 + 10
    assert [stage.saved_bytes for stage in SKIP.stages((1,))] == [110, 10]
    assert [stage.saved_bytes for stage in SKIP.stages((2,))] == [110, 11]
    assert (whole.forward_cycles, whole.backward_cycles, whole.work_bytes) == (9, 12, 9)
    assert (whole.infeed_bytes, whole.outfeed_bytes) == (100, 4)
    assert [(s.infeed_bytes, s.outfeed_bytes) for s in SKIP.stages((1, 2))] == [
        (100, 0), (0, 0), (0, 4),
    ]
    assert whole.largest == (("a/w", 100),)
    assert [stage.update_cycles for stage in SKIP.stages((1,))] == [9, 0]


@given(st.integers(2, 9), st.integers(0, 99), st.booleans(), st.data())
def test_tables_hold_the_figures_of_every_run_of_layers(n, seed, shared, data):
    chain = chain_of(n, seed, shared)
    cuts = tuple(sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=3))))
    plan = Plan([abs] * 2, count=4, replicas=2, shard_state=True, offload=data.draw(st.sampled_from(
        [(), ("state",), ("state", "weights", "accumulators")])))
    ranges = ChainRanges(chain)
    arrays = ranges.stages(np.array([cuts], np.int64).reshape(1, len(cuts)))
    for stage, of_all in zip(chain.stages(cuts), arrays, strict=True):
        for name in ranges.tables:
            assert getattr(stage, name) == getattr(of_all, name)[0], name
        assert stage.state_in(plan) == tuple(size[0] for size in of_all.state_in(plan))
        assert sum(stage.brought(plan).values()) == of_all.brought(plan)["state"][0]


def test_layers_that_use_one_variable_are_known():
    assert chain_of(5, shared=True).shared == ((0, 4),)
    assert chain_of(5).shared == ()
    assert chain_of(5, shared=True).first_uses[0] == 0


def test_stages_of_a_plan_are_a_chain_that_is_cut_there_only():
    stages = chain_of(9).stages((2, 5))
    chain = LayerChain.of_stages(stages, count=8)
    assert [layer.name for layer in chain.layers] == ["stage 0", "stage 1", "stage 2"]
    for before, after in zip(stages, chain.stages((1, 2)), strict=True):
        for name in (
            "parameter_bytes", "state_tensors", "accumulator_bytes", "input_bytes", "output_bytes",
            "saved_bytes", "forward_cycles", "backward_cycles", "infeed_bytes", "outfeed_bytes",
        ):
            assert getattr(before, name) == getattr(after, name), name
    with pytest.raises(ValueError, match="of no program; measure one with layers"):
        LayerChain.of_stages([])
    assert LayerChain.of_stages([StageFigures(parameter_bytes=8)]).stage(0, 1).parameter_bytes == 8
