"""Orders of sums over replicas: golden (four replicas), differential (numpy, fractions), law."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fpsim import BINARY16, BINARY32
from ipu.experiments.execution import reduction_orders
from ipu.learn.address import Numbering
from ipu.machine import Device
from ipu.plan.orders import Order
from tests.experiments.figures import assert_panels

RINGS = [order.value for order in reduction_orders.RINGS]


@pytest.fixture(scope="module")
def quick(few):
    few.setattr(reduction_orders, "ENTRIES", 64)
    # Two replicas have one order; the quick run's 16 take most of its time.
    few.setattr(reduction_orders, "QUICK_REPLICAS", (2, 8))
    return reduction_orders.run(quick=True, seed=1)


def means(order, values, fmt=BINARY16):
    devices = [Device(seed=1) for _ in values]
    tensors = [d.from_host(x, fmt) for d, x in zip(devices, values, strict=True)]
    numberings = [Numbering(d, r) for r, d in enumerate(devices)]
    return reduction_orders._mean(tensors, numberings, Order.parse(order))


@pytest.mark.parametrize(
    ("order", "places"),
    [("sequential", [0, 0, 0, 0]), ("tf_ring", [0, 2, 2, 0]), ("clockwise_ring", [2, 2, 0, 0]),
     ("meet_in_middle_ring", [2, 0, 0, 2]), ("tree", [1] * 4), ("recursive_halving", [1] * 4)],
)
def test_a_large_replica_beside_three_small_ones(order, places):
    """1 + 3·2^-11 in FP16, a chunk of one element each; places of 2^-10 above 1."""
    values = np.full((4, 4), 2.0**-11)
    values[0] = 1.0
    assert means(order, values).tolist() == [(1 + 2.0**-10 * n) / 4 for n in places]


def test_a_tree_in_binary32_is_numpys():
    values = np.random.default_rng(3).standard_normal((8, 5)).astype(np.float32)
    pairs = values
    while len(pairs) > 1:
        pairs = pairs[::2] + pairs[1::2]
    assert means("tree", values, BINARY32).tolist() == (pairs[0] / np.float32(8)).tolist()


def test_the_exact_mean_is_that_of_fractions():
    draw = np.random.default_rng(4)
    values = draw.standard_normal((8, 3, 2)) * 2.0 ** draw.integers(-40, 40, (8, 3, 2))
    mean = reduction_orders.exact_mean(values)
    for i, j in np.ndindex(3, 2):
        assert mean[i, j] == float(sum(map(Fraction, values[:, i, j].tolist())) / 8)


def test_errors_are_in_unit_roundoffs():
    exact = np.array([[1.0], [1.0]])
    mean = np.array([[[1.0 + 2.0**-11]], [[1.0 - 2.0**-11]]])
    (row, *_, between) = reduction_orders._rows(
        {Order.TREE: mean, Order.TF_RING: mean + 2.0**-11}, exact, BINARY16, (7,)
    )
    assert (row["error"], row["bias"], row["spread"], row["seed"]) == (1.0, 0.0, 0.0, 7)
    assert (between["apart"], between["differ"]) == (1.0, 1.0)


def test_spread_is_that_of_draws():
    exact = np.array([[1.0]])
    mean = np.array([[[1.0 + 2.0**-11, 1.0 - 2.0**-11]]])
    (row, _) = reduction_orders._rows({Order.TREE: mean}, exact, BINARY16, (0,))
    assert row["spread"] == pytest.approx(math.sqrt(2))


def test_one_rounding_of_a_uniform_logarithm():
    draw = np.random.default_rng(5)
    x = np.exp2(draw.random(200_000))
    error = x.astype(np.float16).astype(np.float64) / x - 1
    rms = np.sqrt((error**2).mean()) * 2**11
    assert rms == pytest.approx(reduction_orders.ROUNDING_ERROR, rel=0.01)


@pytest.mark.parametrize("rounding", ["RNE", "SR"])
def test_two_replicas_have_one_sum_to_nearest(quick, rounding):
    rows = quick.select(part="between", replicas=2, rounding="RNE")
    assert {row["apart"] for row in rows} == {0.0}
    drawn = quick.column("spread", part="error", rounding=rounding, data="gradients of digits")
    assert (drawn > 0).all() if rounding == "SR" else (drawn == 0).all()


def test_built_gradients_do_what_they_are_built_for(quick):
    """A large one first hides the others from every left fold; halves that cancel, cancel first."""
    where = {"part": "error", "format": "FP16", "rounding": "RNE", "replicas": 8}
    large, opposite = (
        {o.value: quick.column("error", data=d, order=o.value, **where).mean()
         for o in reduction_orders.ORDERS}
        for d in (reduction_orders.LARGE, reduction_orders.OPPOSITE)
    )
    assert max(large, key=large.get) == "sequential"
    assert opposite["recursive_halving"] * 50 < min(
        e for o, e in opposite.items() if o != "recursive_halving"
    )
    lost = reduction_orders.built(reduction_orders.LARGE, BINARY16, 8, 1)
    half = lost.astype(np.float16)
    assert means("sequential", half).tolist() == (half[0].astype(np.float64) / 8).tolist()


def second_verdict(rows):
    """Student's interval of each ring's log error ratio, from the rows alone."""
    most = max(row["replicas"] for row in rows)
    above, below = [], []
    for way in {(r["format"], r["rounding"]) for r in rows}:
        errors = {}
        for r in rows:
            place = (r["part"], r["data"], r["replicas"], r["format"], r["rounding"])
            if place == ("error", "gradients of digits", most, *way):
                errors.setdefault(r["order"], []).append(r["error"])
        for ring in RINGS:
            logs = np.log(errors[ring]) - np.log(errors["tree"])
            low, high = stats.t.interval(0.95, len(logs) - 1, logs.mean(), stats.sem(logs))
            above.append(low > 0)
            below.append(high < 0)
    return "Yes." if all(above) else "No." if any(below) else "Undecided by this run"


def test_the_sentence_is_computed_a_second_time(quick):
    assert quick.answer.startswith(second_verdict(quick.rows))
    where = {"part": "error", "format": "FP16", "rounding": "RNE", "replicas": 8,
             "data": reduction_orders.OPPOSITE}
    error = quick.column("error", order="recursive_halving", **where).mean()
    assert f"on opposite replicas recursive_halving ({error:.2g} u)" in quick.answer


def test_where_the_tree_is_not_best_is_told(quick):
    """A second time: paired logarithms of the errors, Student's interval, in every case."""
    beaten, cases = {}, 0
    for data in reduction_orders.DATA:
        for name, rounding in reduction_orders.WAYS:
            for replicas in sorted(set(quick.column("replicas", part="error").tolist())):
                where = {"part": "error", "data": data, "format": name, "rounding": rounding,
                         "replicas": replicas}
                errors = {o.value: quick.column("error", order=o.value, **where)
                          for o in reduction_orders.ORDERS}
                first = min(errors, key=lambda order: errors[order].mean())
                tiny = np.finfo(float).tiny
                logs = np.log(np.maximum(errors["tree"], tiny) / np.maximum(errors[first], tiny))
                half = stats.t.ppf(0.975, len(logs) - 1) * stats.sem(logs)
                cases += 1
                if logs.mean() - half > 0:
                    beaten[data, name, rounding, replicas] = (
                        errors["tree"].mean() - errors[first].mean(), first)
    assert beaten, "panels disagree"
    worst = max(beaten, key=lambda place: beaten[place][0])
    assert f"In {len(beaten)} of {cases} cases" in quick.answer
    assert f"most on {worst[0]} in {worst[1]} {worst[2]} at R = {worst[3]}, where " \
        f"{beaten[worst][1]} is off by" in quick.answer


@pytest.mark.parametrize(
    ("factor", "noise", "opening"),
    [(2.0, 0.01, "Yes."), (0.5, 0.01, "No."), (1.0, 0.3, "Undecided by this run"),
     (1.1, 2.0, "Undecided by this run")],
)
def test_the_verdict_follows_from_the_rows(quick, factor, noise, opening):
    rows = []
    for row in quick.rows:
        if row.get("order") in (*RINGS, "tree"):
            base = factor if row["order"] in RINGS else 1.0
            drawn = noise * (-1) ** row["seed"] if row["order"] in RINGS else 0.0
            row = {**row, "error": base * math.exp(drawn)}
        rows.append(row)
    assert reduction_orders._answer(rows).startswith(opening)
    assert second_verdict(rows) == opening


def test_an_order_is_best_only_beyond_the_uncertainty():
    rows = [
        {"part": "error", "order": o.value, "seed": s, "error": 2.0 + s / 100, "data": "d"}
        for o in reduction_orders.ORDERS for s in range(4)
    ]
    assert len(reduction_orders.best(rows, data="d")[0]) == len(reduction_orders.ORDERS)
    better = [{**r, "error": 1.0 + r["seed"] / 90} if r["order"] == "tree" else r for r in rows]
    orders, error = reduction_orders.best(better, data="d")
    assert orders == ["tree"]
    assert error == pytest.approx(1 + 1.5 / 90)


def test_every_panel_shows_data(quick):
    assert_panels(reduction_orders.plot(quick), 6)
