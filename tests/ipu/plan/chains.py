"""Chains of layers with figures by chance, of a seed."""

from __future__ import annotations

import random

from ipu.plan.chain import Activation, ChainLayer, LayerChain
from ipu.plan.cycles import timeline
from ipu.plan.memory import Holding, lives, peaks
from ipu.plan.search import Search


def chain_of(n: int, seed: int = 0, shared: bool = False) -> LayerChain:
    """A chain of n layers, in which some activations cross several layers.

    shared    the last layer uses the first one's variable.
    """
    rng = random.Random(seed)
    layers = [
        ChainLayer(
            f"layer{i}", rng.randrange(100, 1000), rng.randrange(100, 2000),
            rng.randrange(10**4), rng.randrange(50), (i,),
        ) for i in range(n)
    ]
    if shared:
        layers[-1] = layers[-1]._replace(variables=(n - 1, 0))
    activations = [Activation(1000, -1, 0, 0)]
    for i in range(n):
        last = min(n - 1, i + rng.randrange(1, 4))
        saved = rng.choice([-1, i, min(i + 1, n - 1)])
        activations.append(Activation(rng.randrange(10**4), i, last, saved))
    variables = {}
    for i in range(n):
        size = 4 * rng.randrange(10, 10**5)
        variables[i] = Holding(size, size // 2, (size, size), 4, f"weight{i}")
    return LayerChain(layers, activations, variables, 1000, 4, 5000, 8)


def costs(plan, stages):
    """Cycles and the largest peak, by the timeline and the rows of memory themselves."""
    cycles = max(event.start + event.cycles for event in timeline(plan, stages))
    return cycles, max(peak.bytes for peak in peaks(lives(plan, stages)).values())


def faster_by_chance(result: Search, count: int, seed: int = 7):
    """Plans by chance that are faster than all plans of the front which need no more memory."""
    rng, chain = random.Random(seed), result.chain
    plans = list(result.space.plans(chain))
    for _ in range(count):
        plan = rng.choice(plans)
        cuts = sorted(rng.sample(range(1, len(chain)), plan.n_stages - 1))
        cycles, size = costs(plan, chain.stages(cuts))
        as_small = (row.cycles for row in result.rows if row.bytes <= size)
        if min(as_small, default=float("inf")) > cycles * (1 + 1e-12):
            yield plan, cuts
