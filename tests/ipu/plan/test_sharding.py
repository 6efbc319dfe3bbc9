"""Shards of variables, their slots and their places (law); bits in `test_trainer`."""

from __future__ import annotations

import numpy as np

from ipu.learn.optim import SGD
from ipu.plan.plan import Plan
from ipu.plan.sharding import gathered_slots, shards_of, write_back
from tests.ipu.plan.networks import ROW, batch, trainer

PLAN = Plan(ROW[1], count=1, replicas=3, shard_state=True, shard_minimum=9)


def sharded():
    training = trainer(PLAN, optimizer=SGD(0.1, 0.9))
    training.step(*batch(0, 6))
    pairs = [[(v.array, v) for v in w.variables.trainable] for w in training.workers]
    shards = [
        shards_of(w, p, r, PLAN)
        for r, (w, p) in enumerate(zip(training.workers, pairs, strict=True))
    ]
    return training, pairs, shards


def test_shards_cover_each_variable_once_and_know_their_place():
    training, pairs, shards = sharded()
    for index, variable in enumerate(training.variables.trainable):
        pieces = [shard.pairs[index] for shard in shards]
        complete = variable.array.carrier.reshape(-1)
        if variable.array.size < 9:
            assert all(v is p[index][1] for (_, v), p in zip(pieces, pairs, strict=True))
            continue
        starts = [v.first for _, v in pieces]
        assert starts == [r * -(-complete.size // 3) for r in range(3)]
        assert np.array_equal(np.concatenate([v.array.carrier for _, v in pieces]), complete)
        assert [g.size for g, _ in pieces] == [v.array.size for _, v in pieces]
        slot = [shard.slots[variable.name][0].carrier for shard in shards]
        slot_values = training.slots[variable.name][0].carrier
        assert np.array_equal(np.concatenate(slot), slot_values.reshape(-1))


def test_every_replica_gathers_what_each_has_computed():
    training, _, shards = sharded()
    for r, shard in enumerate(shards):
        for _, variable in shard.pairs:
            if variable.name in shard.chunks:
                variable.array = training.workers[r].device.from_host(
                    np.full(variable.shape, r), variable.dtype
                )
    write_back(training.workers, shards)
    complete = gathered_slots(training.workers, shards, [shard.slots for shard in shards])
    for name in shards[0].chunks:
        for worker, slots in zip(training.workers, complete, strict=True):
            variable = worker.variables[name]
            size = -(-variable.array.size // 3)
            wanted = np.repeat(range(3), size)[: variable.array.size]
            assert np.array_equal(variable.array.carrier.reshape(-1), wanted)
            assert slots[name][0].shape == variable.shape
            assert np.array_equal(slots[name][0].carrier, training.slots[name][0].carrier)
