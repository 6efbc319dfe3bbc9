"""Horovod's collectives: of one process, and the ring's bits of several (golden, differential)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.records.formats import BINARY16
from ipu.learn.address import Numbering
from ipu.machine.device import Device
from ipu.plan.collectives import reduce_sum
from tests.ipu.frontends.horovod.program import alone, by_poprun

BEGIN = """
import sys
import numpy as np
from ipu.frontends import horovod as hvd
hvd.init()
def refused(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except (TypeError, ValueError) as error:
        print(type(error).__name__, error)
"""


def test_one_process_has_its_own_values():
    code = """
from ipu.machine.device import Device
x = np.array([1.0, 2.0], np.float16)
for op in (hvd.Sum, hvd.Average):
    y = hvd.allreduce(x, op=op)
    assert y.dtype == x.dtype and y.tolist() == [1.0, 2.0]
array = Device().from_host(x, __import__("fpsim").BINARY16)
assert repr(hvd.allreduce(array)) == repr(array)
assert hvd.allreduce(np.arange(3), average=False).tolist() == [0, 1, 2]
assert hvd.allgather(x).tolist() == hvd.broadcast(x, 0).tolist() == [1.0, 2.0]
refused(hvd.allreduce, np.zeros(1))
refused(hvd.allreduce, np.zeros(1, int))
refused(hvd.allreduce, x, average=True, op=hvd.Sum)
refused(hvd.allreduce, x, op="Max")
refused(hvd.allgather, np.float32(1))
refused(hvd.allgather, np.array([None]))
refused(hvd.broadcast, x, 1)
"""
    status, out, errors = alone(code, BEGIN, **by_poprun())
    assert status == 0, errors
    assert out.splitlines() == [
        "TypeError Average of float64 is no operation of the machine; use float16 or float32",
        "TypeError Average of int64 is no operation of the machine; use float16 or float32",
        "ValueError average=True and op=Op.SUM: use op alone",
        "TypeError op='Max' is not modelled; use hvd.Sum or hvd.Average",
        "ValueError allgather of float32 (): tensors need a first axis, and one type and shape "
        "behind it",
        "TypeError arrays of object are not exchanged; use numbers of numpy's own types",
        "ValueError root_rank=1 is not a process; use 0 to 0",
    ]


SEVERAL = """
rank, size = hvd.rank(), hvd.size()
values = np.random.default_rng(7).standard_normal((size, 103)).astype(np.float16)
x = values[rank]
total, mean = hvd.allreduce(x, op=hvd.Sum), hvd.allreduce(x)
print("sum", total.tobytes().hex())
print("mean", mean.tobytes().hex())
assert hvd.allreduce(np.array([rank]), op=hvd.Sum).tolist() == [sum(range(size))]
rows = hvd.allgather(np.full((rank, 2), rank, np.float32))
assert rows[:, 0].tolist() == [r for r in range(size) for _ in range(r)]
weights = {"w": np.full(3, rank, np.float32)}
hvd.broadcast_variables(weights, 1)
assert weights["w"].tolist() == [1.0] * 3
assert (hvd.local_rank(), hvd.local_size()) == (rank, size)
refused(hvd.allgather, np.zeros((1, 1 + rank)))
"""


def test_several_processes_have_the_rings_bits():
    mpi = pytest.importorskip("tests.ipu.members.mpi")
    size = 3
    status, lines, errors = mpi.mpirun(size, SEVERAL, begin=BEGIN)
    assert status == 0, errors
    values = np.random.default_rng(7).standard_normal((size, 103)).astype(np.float16)
    devices = [Device() for _ in range(size)]
    tensors = [d.from_host(x, BINARY16) for d, x in zip(devices, values, strict=True)]
    total = reduce_sum(tensors, [Numbering(d) for d in devices], 0, "tf_ring")
    mean = devices[0].divide(devices[0].context(BINARY16).wrap(total.carrier), float(size))
    hexes = [x.carrier.astype(np.float16).tobytes().hex() for x in (total, mean)]
    assert hexes[0] != values.sum(0, dtype=np.float16).tobytes().hex()
    shapes = ", ".join(f"float64 (1, {1 + rank})" for rank in range(size))
    refusal = f"ValueError allgather of {shapes}: tensors need a first axis, and one type and shape"
    assert lines == sorted(
        [f"mean {hexes[1]}", f"sum {hexes[0]}", f"{refusal} behind it"] * size
    )


@pytest.mark.tier("full")
def test_a_process_that_raises_ends_all():
    mpi = pytest.importorskip("tests.ipu.members.mpi")
    code = """
if hvd.rank() == 1:
    raise KeyError("theirs")
hvd.allreduce(np.zeros(4, np.float32))
"""
    status, _, errors = mpi.mpirun(2, code, begin=BEGIN)
    assert status == 3
    assert "KeyError: 'theirs'" in errors
    assert "stopped: KeyError: 'theirs'" in errors
