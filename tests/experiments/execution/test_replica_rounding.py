"""Replicas stay equal with equal bits and drift with private ones; verdicts by the rows (law)."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ipu.experiments.execution import replica_rounding
from ipu.experiments.training import digits
from ipu.learn.optim import SGD
from ipu.plan.plan import Plan
from ipu.plan.trainer import PlanTrainer
from tests.experiments.figures import assert_panels


@pytest.fixture(scope="module")
def quick(few):
    few.setattr(replica_rounding, "QUICK", (3, 8))
    return replica_rounding.run(quick=True, seed=1)


def codes(values):
    """Neighbouring halves are neighbouring integers."""
    bits = values.astype(np.float16).view(np.uint16).astype(np.int64)
    return np.where(bits & 0x8000, -(bits & 0x7FFF), bits)


def test_drift_counts_halves_in_between():
    """Within a binade; the larger value's ulp counts where an exponent lies between."""
    draw = np.random.default_rng(0)
    first = (1 + draw.random(100)).astype(np.float16).astype(np.float64)
    second = np.clip(first + draw.integers(-9, 10, 100) * 2.0**-10, 1, 2 - 2.0**-10)
    steps = np.abs(codes(first) - codes(second))
    drift = replica_rounding.drift(np.stack([first, second]))
    assert drift == {
        "mean_ulps": steps.mean(), "median_ulps": np.median(steps), "largest_ulps": steps.max(),
        "differ": (steps > 0).mean(),
    }
    above, below = np.array([[1.0], [1.0 - 2.0**-11]])
    assert replica_rounding.drift(np.stack([above, below]))["largest_ulps"] == 0.5
    tiny = np.array([[2.0**-24], [-(2.0**-24)], [0.0]])
    assert replica_rounding.drift(tiny)["largest_ulps"] == 2


@pytest.mark.parametrize("way", replica_rounding.TOGETHER)
def test_equal_bits_keep_replicas_equal(quick, way):
    assert set(quick.column("largest_ulps", part="drift", way=way)) == {0.0}
    for seed in (1, 2, 3):
        for replicas in replica_rounding.REPLICAS:
            where = {"part": "accuracy", "way": way, "seed": seed, "replicas": replicas}
            accuracy = quick.column("accuracy", **where)
            assert len(accuracy) == replicas
            assert len(set(accuracy)) == 1


def test_private_bits_part_the_replicas_from_the_first_step_on(quick):
    assert [r["step"] for r in quick.select(part="drift", way="private bits", seed=1,
                                            replicas=2)] == [1, 2, 4, 8]
    assert (quick.column("differ", part="drift", way="private bits") > 0).all()


def test_other_ways_are_other_trainings(quick):
    """Equal bits are drawn, not left out: ways of staying equal end at losses of their own."""
    last = {way: quick.column("loss", part="drift", way=way, step=8).tolist()
            for way in replica_rounding.WAYS}
    assert len({tuple(losses) for losses in last.values()}) == len(replica_rounding.WAYS)


def second_verdict(rows):
    """Intervals of the last drifts, and whether anything else moved, from the rows alone."""
    last = max(row["step"] for row in rows if row["part"] == "drift")
    others = [r["largest_ulps"] for r in rows
              if r["part"] == "drift" and r["way"] != "private bits"]
    lows, values = [], []
    for replicas in (2, 4):
        drifts = [r["mean_ulps"] for r in rows if r["part"] == "drift" and r["step"] == last
                  and r["way"] == "private bits" and r["replicas"] == replicas]
        width = stats.t.ppf(0.975, len(drifts) - 1) * np.std(drifts, ddof=1) / len(drifts) ** 0.5
        lows.append(np.mean(drifts) - width)
        values.append(np.mean(drifts))
    if min(lows) > 0 and not any(others):
        return "Yes."
    return "No." if not any(values) else "Undecided by this run"


def test_the_sentence_is_computed_a_second_time(quick):
    assert quick.answer.startswith(second_verdict(quick.rows))
    drifts = quick.column("mean_ulps", part="drift", way="private bits", step=8, replicas=2)
    assert f"{drifts.mean():.2f} ±" in quick.answer
    worst = quick.column("largest_ulps", part="drift", way="private bits", step=8, replicas=4)
    assert f"the worst by {worst.max():.0f} ulps" in quick.answer


@pytest.mark.parametrize(
    ("drifts", "stray", "opening"),
    [((1.0, 1.1, 1.2), 0, "Yes."), ((0.0, 0.0, 0.0), 0, "No."),
     ((0.1, 5.0, 0.2), 0, "Undecided by this run"), ((1.0, 1.1, 1.2), 1, "Undecided by this run")],
)
def test_the_verdict_follows_from_the_rows(quick, drifts, stray, opening):
    rows = []
    for row in quick.rows:
        if row["part"] == "drift":
            moved = row["way"] == "private bits"
            drift = drifts[row["seed"] - 1] if moved else stray
            row = {**row, "mean_ulps": drift, "largest_ulps": drift}
        rows.append(row)
    assert replica_rounding._answer(rows).startswith(opening)
    assert second_verdict(rows) == opening


def test_a_random_walk_grows_as_the_square_root():
    rows = [
        {"part": "drift", "way": "private bits", "replicas": 4, "seed": seed, "step": step,
         "mean_ulps": (1 + seed / 10) * step**0.5}
        for seed in range(3) for step in (1, 2, 4, 8, 16)
    ]
    assert replica_rounding.growth(rows, 4).value == pytest.approx(0.5)


def test_many_replicas_take_batches_of_their_own(few, quick):
    """A hundred replicas need more digits than there are: a step takes more than an epoch."""
    few.setattr(replica_rounding, "MANY", (100, 2))
    equal, private = jobs = replica_rounding.many(1)
    steps = [*replica_rounding._batches(private)]
    of_replicas = np.stack(steps).reshape(200, replica_rounding.BATCH)
    assert all(len(set(batch)) == replica_rounding.BATCH for batch in of_replicas.tolist())
    assert len({tuple(batch) for batch in of_replicas.tolist()}) == 200
    rows = [{**row, "way": job.way, "replicas": 100, "seed": 1}
            for job in jobs for row in replica_rounding._train(job)[0]]
    drifts = {(row["way"], row["step"]): row["largest_ulps"] for row in rows}
    assert [drifts[equal.way, step] for step in (1, 2)] == [0, 0]
    assert min(drifts[private.way, step] for step in (1, 2)) > 0
    (last,) = [r for r in rows if r["way"] == private.way and r["step"] == 2]
    answer = replica_rounding._answer([*quick.rows, *rows])
    assert answer.startswith(quick.answer)
    assert f"100 replicas with private bits are {last['mean_ulps']:.2f} ulps apart" in answer


def test_every_panel_shows_data(quick):
    assert_panels(replica_rounding.plot(quick), 3)


def test_accuracies_are_those_of_each_replicas_own_weights(few):
    """Without weights every logit is 0, so every digit is taken for a zero."""
    trainer = PlanTrainer(SGD(0.1), plan=Plan([digits.network], replicas=2), seed=1)
    data = digits.load()
    learn, test = data.split(1)
    for start in range(0, 160, 32):
        batch = learn[start : start + 32]
        trainer.step(data.images[batch], data.labels[batch])
    worker = trainer.workers[1]
    for variable in worker.variables.values():
        variable.array = worker.device.zeros(variable.shape, variable.dtype)
    accuracy = trainer.accuracy(data.images[test], data.labels[test])
    rows = list(replica_rounding._accuracies(trainer, 1))
    zeros = float(np.mean(data.labels[test] == 0))
    assert [row["accuracy"] for row in rows] == [accuracy, zeros]
    assert accuracy != zeros
