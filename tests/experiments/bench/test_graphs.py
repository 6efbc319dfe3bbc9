"""The programs that `fpsim bench graphs` times do the same on the machine and in TensorFlow."""

from importlib.util import find_spec

import pytest

from ipu.experiments.bench import graphs
from ipu.experiments.bench.timing import Size, run

pytestmark = pytest.mark.skipif(
    find_spec("tensorflow") is None, reason="tensorflow is not installed; run: make test-tensorflow"
)


@pytest.mark.parametrize("name", graphs.NETWORKS)
def test_a_network_learns_alike_in_binary32(name):
    native = graphs._in_tensorflow(name)
    machine = graphs._on_the_machine(name, "fp32", sr=False, count=False)
    losses, on_machine = ([float(call()) for _ in range(3)] for call in (native, machine))
    assert on_machine == pytest.approx(losses, rel=1e-4)
    assert losses[2] < losses[0]


def test_each_way_is_timed_beside_tensorflow():
    records = list(run(graphs.cases(Size(1, 1), quick=True), 1))
    assert [(r.format, r.data) for r in records] == [
        ("binary16", "graph"), ("binary16", "counted"), ("binary32", "graph"),
    ]
    assert all(r.peer.startswith("tensorflow ") and r.ratio > 0 for r in records)
