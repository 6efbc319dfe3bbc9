"""The data loader: sizes of batches, modes, the guide's example (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.poptorch.framework import options, poptorch, torch

Mode = poptorch.DataLoaderMode


class Numbers(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor(float(i)), i


class Stream(torch.utils.data.IterableDataset):
    """100 items; each worker has a share of them."""

    def __len__(self):
        return 100

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        number, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        share = -(-100 // count)
        return iter(range(number * share, min((number + 1) * share, 100)))


@pytest.mark.source("S2-08", "S2-10", "S2-25")
def test_a_step_delivers_the_samples_of_one_call():
    training = options(count=10, iterations=10)
    loader = poptorch.DataLoader(training, Numbers(60_000), batch_size=40)
    assert (len(loader), loader.combinedBatchSize) == (15, 4000)
    test = poptorch.DataLoader(poptorch.Options().deviceIterations(100), Numbers(10_000), 8)
    assert (len(test), test.combinedBatchSize) == (12, 800)
    replicated = poptorch.DataLoader(options(count=2, replicas=4), Numbers(100), batch_size=3)
    assert replicated.combinedBatchSize == 24


@pytest.mark.source("S2-09")
@pytest.mark.parametrize("mode", list(Mode))
def test_batches_hold_the_samples_in_order(mode):
    loader = poptorch.DataLoader(
        options(count=2), Numbers(11), batch_size=2, mode=mode, rebatched_worker_size=1
    )
    batches = [numbers.tolist() for _, numbers in loader]
    assert batches == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(loader) == 2


@pytest.mark.tier("full")  # starts 14 processes
@pytest.mark.filterwarnings("ignore:This DataLoader will create 7 worker")
@pytest.mark.parametrize(("mode", "used"), [(Mode.Async, 80), (Mode.AsyncRebatched, 100)])
def test_the_guides_example_of_seven_workers(mode, used):
    """100 items, batch 4: shares of 15 or 10 lose their ends, unless they are joined."""
    loader = poptorch.DataLoader(poptorch.Options(), Stream(), batch_size=4, num_workers=7,
                                 mode=mode, rebatched_worker_size=1,
                                 persistent_workers=False)
    assert [len(batch) for batch in loader] == [4] * (used // 4)


def test_rebatching_joins_the_rests_of_workers(monkeypatch):
    """The example without processes: pieces of 15 and 10 samples."""
    loader = poptorch.DataLoader(
        poptorch.Options(), Stream(), batch_size=4, mode=Mode.AsyncRebatched,
        rebatched_worker_size=1,
    )
    pieces = [torch.arange(4), torch.arange(3), torch.arange(1), torch.arange(2)]
    assert [len(batch) for batch in loader._rebatched(iter(pieces))] == [4, 4]


@pytest.mark.parametrize("count", [1, 2])
def test_rebatching_leaves_out_what_fills_no_call(count):
    """Where a worker loads a whole call's samples too."""
    loader = poptorch.DataLoader(options(count=count), Numbers(10), 4 // count,
                                 mode=Mode.AsyncRebatched)
    assert [numbers.tolist() for _, numbers in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(loader) == 2


def test_samples_can_be_shuffled_and_the_rest_kept():
    torch.manual_seed(0)
    loader = poptorch.DataLoader(
        poptorch.Options(), Numbers(10), batch_size=4, shuffle=True, drop_last=False
    )
    batches = [numbers.tolist() for _, numbers in loader]
    assert [len(batch) for batch in batches] == [4, 4, 2]
    order = [number for batch in batches for number in batch]
    assert sorted(order) == list(range(10)) != order


def test_an_accessor_is_the_loader_as_it_is():
    loader = poptorch.DataLoader(poptorch.Options(), Numbers(4), batch_size=2)
    accessor = poptorch.AsynchronousDataAccessor(loader)
    assert len(accessor) == len(list(accessor)) == 2
    accessor.terminate()
    loader.terminate()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"options": 3}, TypeError, "options=int is not a poptorch.Options"),
        ({"mode": 1}, TypeError, "is not a poptorch.DataLoaderMode"),
        ({"batch_size": 0}, ValueError, r"batch_size\(0\): use 1 or more"),
        ({"async_options": {"x": 1}}, ValueError, "async_options with mode=Sync"),
        ({"mode": Mode.AsyncRebatched, "drop_last": False}, ValueError, "needs drop_last=True"),
        ({"mode": Mode.AsyncRebatched, "rebatched_worker_size": 3}, ValueError,
         "does not divide the 4 micro-batches"),
    ],
)
def test_bad_input_is_one_sentence(change, error, words):
    arguments = {"options": options(count=4), "dataset": Numbers(8), "batch_size": 1} | change
    with pytest.raises(error, match=words):
        poptorch.DataLoader(**arguments)
