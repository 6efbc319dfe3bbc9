"""Ways of training beside one of them: runs of equal seeds are pairs, judged as in --compare.

The answers are those of `ipu.run.judging`, so a page of an experiment and one of `--compare` mean
the same by "as good", "better", "worse" and "cannot tell".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ipu.experiments.lab.result import Result
from ipu.run.endpoints import Endpoint, Outcome
from ipu.run.judging import CANNOT_TELL, WORSE, Declaration, Judged, judge
from ipu.run.verdict import over_seeds, verdict

__all__ = ["ACCURACY", "declared", "judged_text", "judged_ways", "mean_text",
           "opening"]

#: Share of the test images that are recognised, in per cent; a point does not matter.
ACCURACY = Endpoint("highest", 1.0)


def declared(pairs: int, endpoint: Endpoint = ACCURACY) -> str:
    """What is fixed before the runs, for the parameters of a result.

    >>> declared(5).partition(";")[0]
    'test accuracy in %: endpoint highest, margin 1'
    """
    what = "" if endpoint.is_loss else "test accuracy in %: "
    return f"{what}{Declaration(endpoint, pairs)}"


def judged_ways(
    result: Result, names: Iterable[str], reference: str, endpoint: Endpoint = ACCURACY
) -> dict[str, Judged]:
    """Each way by its name, beside the reference's runs of the seeds that both have.

    result    has rows of the parts `loss` (policy, seed, epoch, loss) and `test` (policy, seed,
              accuracy).
    """
    runs = {name: _runs(result, name) for name in {*names, reference}}
    judged = {}
    for name in names:
        seeds = [seed for seed in runs[reference] if seed in runs[name]]
        ours, theirs = ([runs[way][seed] for seed in seeds] for way in (name, reference))
        judged[name] = judge(endpoint, ours, theirs, reference=reference)
    return judged


def _runs(result: Result, name: str) -> Mapping[int, Outcome]:
    """Of each seed the losses by epoch, which show what was learnt, and the accuracy."""
    runs = {}
    for row in result.select(part="test", policy=name):
        seed = row["seed"]
        losses = result.column("loss", part="loss", policy=name, seed=seed).tolist()
        runs[int(str(seed))] = Outcome(losses, score=100 * float(str(row["accuracy"])))
    return runs


def judged_text(name: str, judged: Judged, unit: str = "points") -> str:
    """A way with its answer, as "FP16: worse (at least 3.1), 7.9 ± 1.2 points lost".

    >>> from ipu.run.endpoints import PROGRESS
    >>> judged_text("FP16", Judged("cannot tell", PROGRESS, note="2 of 5 pairs"))
    'FP16: cannot tell (2 of 5 pairs)'
    """
    lost = judged.difference.lstrip("+")
    return f"{name}: {judged}" + ("" if lost == "–" else f", {lost} {unit} lost")


def opening(*judged: Judged) -> str:
    """How the answer begins to whether all of these ways are as good as the reference.

    >>> from ipu.run.endpoints import PROGRESS
    >>> opening(Judged("cannot tell", PROGRESS, needs=20))
    'Undecided by this run; 20 pairs of runs would decide it.'
    """
    needs = "a training in which the reference learns"
    if all(one.is_good or one.answer in (WORSE, CANNOT_TELL) for one in judged):
        most = [one.needs for one in judged if one.answer == CANNOT_TELL]
        needs = f"{max(filter(None, most))} pairs of runs" if all(most) and most else (
            "a smaller noise or a larger margin")
    return verdict(
        all(one.is_good for one in judged), any(one.answer == WORSE for one in judged), needs=needs)


def mean_text(values: Iterable[float]) -> str:
    """A mean in per cent with its interval, as "97.1 ± 0.4 %"; of one value without.

    >>> mean_text([95.0, 96.0, 97.0]), mean_text([95.0])
    ('96.0 ± 2.5 %', '95.0 %')
    """
    effect = over_seeds(values)
    half = f" ± {effect.uncertainty:.1f}" if math.isfinite(effect.uncertainty) else ""
    return f"{effect.value:.1f}{half} %"
