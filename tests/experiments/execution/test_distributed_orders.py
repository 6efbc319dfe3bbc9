"""Orders over threads and processes: one digest each; libraries warn (differential, law)."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.experiments.execution import distributed_orders
from ipu.experiments.execution.distributed_orders import (
    GLOO,
    MPI,
    ORDERS,
    REPLICAS,
    WAYS,
    against,
    digests,
    equalities,
    error_of,
    in_one_process,
    name_of,
)
from ipu.experiments.lab.instances import why_not
from ipu.experiments.lab.result import Result
from ipu.members.local_transport import run_local
from ipu.plan.orders import Order
from tests.experiments.figures import assert_panels


@pytest.fixture(scope="module")
def values():
    """Four replicas' gradients that cancel in part, as those of a training do."""
    draw = np.random.default_rng(2)
    return draw.standard_normal((REPLICAS, 101)) * 2.0 ** draw.integers(-6, 1, 101)


@pytest.fixture(scope="module")
def sums(values):
    return {(way, order): in_one_process(values, 5, *way, order)
            for way in WAYS for order in ORDERS}


@pytest.fixture(scope="module")
def alone(few):
    """A run that uses no extra."""
    few.setattr(distributed_orders, "why_not", lambda transport: f"no {transport}")
    few.setattr(distributed_orders, "find_spec", lambda name: None)
    return distributed_orders.run(quick=True, seed=1)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_threads_have_the_bits_of_one_process(processes, values, sums):
    expected = {name_of(*key): distributed_orders._digest(x) for key, x in sums.items()}
    every = run_local(processes, partial(digests, values=values, seed=5))
    rows = equalities("threads", processes, every, expected)
    assert len(rows) == len(WAYS) * len(ORDERS)
    assert all(row["equal"] for row in rows)
    every[-1][next(iter(expected))] = "another"
    first, *others = equalities("threads", processes, every, expected)
    assert not first["equal"]
    assert all(row["equal"] for row in others)


@pytest.mark.source("S1-10")
def test_digests_of_orders_differ(sums):
    assert len({distributed_orders._digest(x) for x in sums.values()}) == len(sums)


def test_a_tree_in_binary32_is_numpys(values, sums):
    pairs = values.astype(np.float32)
    pairs = pairs[::2] + pairs[1::2]
    total = pairs[0] + pairs[1]
    assert np.array_equal(sums[("FP32", "RNE"), Order.TREE].codes(), total.view(np.uint32))


def test_the_error_is_in_unit_roundoffs():
    exact = np.array([1.0, -1.0])
    assert error_of(exact + 2.0**-11, exact, BINARY16) == pytest.approx(1.0)
    assert error_of(exact + 2.0**-24, exact, BINARY32) == pytest.approx(1.0)


def test_a_library_is_compared_with_each_order_to_nearest(values, sums):
    exact = np.array([math.fsum(column) for column in values.T])
    library_codes = sums[("FP32", "RNE"), Order.TREE].codes()
    rows = list(against("a library", {"FP32": library_codes.tolist()}, sums, exact))
    assert [row["order"] for row in rows] == [order.value for order in ORDERS]
    for row in rows:
        other = sums[("FP32", "RNE"), Order.parse(row["order"])].codes()
        assert row["differ"] == float((library_codes != other).mean())
    differ = {row["order"]: row["differ"] for row in rows}
    assert differ.pop("tree") == 0.0
    assert min(differ.values()) > 0.0
    assert len({row["error"] for row in rows}) == 1


def test_without_extras_it_runs_and_says_what_is_left_out(alone):
    assert alone.answer.startswith(
        "No. All of 24 sums, 12 by each of 2 threads, 4 threads, have the bits of one process."
    )
    assert alone.answer.endswith(
        "Left out: no grpc; no mpi; gloo is not installed; it comes with torch."
    )
    assert not alone.local
    assert alone.parameters["left out"] == ["no grpc", "no mpi", distributed_orders.MISSING_GLOO]
    assert_panels(distributed_orders.plot(alone), 2)
    (table,) = distributed_orders.tables(alone)
    assert table.lines == [["2 threads", "12 of 12"], ["4 threads", "12 of 12"]]


def test_libraries_stand_in_figure_table_and_answer_as_a_warning(alone):
    local = [
        {"part": "library", "library": library, "format": "FP32", "order": order.value,
         "differ": differ, "error": 0.6}
        for library in (MPI, GLOO)
        for order, differ in zip(ORDERS, (0.3, 0.2, 0.0, 0.1), strict=True)
    ]
    result = Result(alone.rows, "", "", local=local)
    answer = distributed_orders._answer(result.rows, local, [])
    assert (
        "Warning: MPI_Allreduce, which is not used, would have differed in FP32 from tree in 0% "
        "and from tf_ring in 30%."
    ) in answer
    _, table = distributed_orders.tables(result)
    assert len(table.lines) == 2 * len(ORDERS)
    assert table.note.startswith("Warning: these sums are not used.")
    errors, differences = distributed_orders.plot(result).axes
    for axes in (errors, differences):
        labels = [tick.get_text() for tick in axes.get_yticklabels()]
        assert labels[-2:] == [f"{MPI} (not used)", f"{GLOO} (not used)"]


def test_a_sum_that_differs_is_said(alone):
    rows = [dict(row) for row in alone.rows]
    next(row for row in rows if row["part"] == "place")["equal"] = False
    answer = distributed_orders._answer(rows, [], [])
    assert answer.startswith("Yes: 1 of 24 sums, 12 by each of")


def test_processes_have_the_bits_of_one(values, sums, tmp_path, monkeypatch):
    """Over gRPC, where it is installed."""
    if why_not("grpc"):
        pytest.skip(f"{why_not('grpc')}; or run: make test-distributed")
    expected = {name_of(*key): distributed_orders._digest(x) for key, x in sums.items()}
    np.save(tmp_path / "x.npy", values)
    every = distributed_orders.run_instances(
        distributed_orders.in_process, 2, "grpc", REPLICAS, path=str(tmp_path / "x.npy"), seed=5
    )
    assert [worker["digests"] for worker in every] == [expected, expected]


def test_mpis_own_sum_is_another_one(values, sums, tmp_path, monkeypatch):
    """The mutation that the bit test must see: MPI_Allreduce in the place of the ring's order."""
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
    monkeypatch.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    if why_not("mpi"):
        pytest.skip(f"{why_not('mpi')}; or run: make test-distributed")
    np.save(tmp_path / "x.npy", values)
    every = distributed_orders.run_instances(
        distributed_orders.in_process, REPLICAS, "mpi", path=str(tmp_path / "x.npy"), seed=5
    )
    expected = {name_of(*key): distributed_orders._digest(x) for key, x in sums.items()}
    assert all(worker["digests"] == expected for worker in every)
    codes = np.array(every[0]["codes"]["FP32"], np.uint32)
    assert (codes != sums[("FP32", "RNE"), Order.TF_RING].codes()).any()
