"""Shares of a dataset: disjoint, complete, shuffled alike (law, golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch, torch

from ipu.frontends.poptorch.shares import ProcessShare  # isort: skip


def options(process, processes=2, seed=None):
    result = poptorch.Options().deviceIterations(2)
    result.Distributed.configureProcessId(process, processes)
    return result if seed is None else result.randomSeed(seed)


def samples(process, *, size=23, batch=3, **choices):
    seed = choices.pop("seed", None)
    loader = poptorch.DataLoader(options(process, seed=seed), range(size), batch, **choices)
    return loader, lambda: [batch.tolist() for batch in loader]


def flat(batches):
    return [x for batch in batches for x in batch]


def test_blocks_follow_each_other_and_fill_whole_calls():
    """A call takes 6 samples: of 27 each process has 12, and 3 are left out."""
    loaders = [samples(process, size=27) for process in range(2)]
    assert [read() for _, read in loaders] == [
        [[*range(6)], [*range(6, 12)]], [[*range(12, 18)], [*range(18, 24)]],
    ]
    assert [len(loader) for loader, _ in loaders] == [2, 2]


def test_without_drop_last_nothing_is_left_out():
    every = [flat(samples(p, drop_last=False)[1]()) for p in range(2)]
    assert every == [[*range(12)], [*range(12, 23)]]


def test_iterations_are_shuffled_alike_and_differ():
    """27 samples: 24 are read in an iteration, and the other 3 are not always the same."""
    readers = [samples(process, size=27, shuffle=True, seed=4)[1] for process in range(2)]
    first, second = ({x for read in readers for x in flat(read())} for _ in range(2))
    assert len(first) == len(second) == 24
    assert first != second
    again = samples(0, size=27, shuffle=True, seed=4)[1]
    alike = samples(0, size=27, shuffle=True, seed=4)[1]
    assert again() == alike() != again()


def test_workers_of_the_loader_see_each_iterations_order():
    loader, read = samples(0, size=27, shuffle=True, seed=4, num_workers=1)
    alone = samples(0, size=27, shuffle=True, seed=4)[1]
    assert [read(), read()] == [alone(), alone()]
    loader.terminate()


def test_a_share_is_of_the_users_if_it_is_asked_for():
    run_options = options(1)
    loader = poptorch.DataLoader(run_options, range(12), 3, auto_distributed_partitioning=False)
    assert [batch.tolist() for batch in loader] == [[*range(6)], [*range(6, 12)]]


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(range(9))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: samples(0, shuffle=True), "use options.randomSeed.n. with one n"),
        (lambda: samples(0, size=11), "11 samples has no batch for each of 2 .* all takes 12"),
        (lambda: poptorch.DataLoader(options(0), Stream(), 1), "an IterableDataset in several"),
        (lambda: poptorch.DataLoader(options(0), range(9), None), "use auto_distributed_part"),
    ],
)
def test_what_cannot_be_shared_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_share_counts_its_samples():
    share = ProcessShare(range(8), options(1), 2, drop_last=True, shuffle=False)
    assert (len(share), [int(share[i]) for i in range(4)]) == (4, [4, 5, 6, 7])
