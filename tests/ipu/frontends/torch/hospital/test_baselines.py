"""The place of a cause: a diagnosis beside what is usually looked at (golden).

    first NaN        the layer of the first result that is not finite.
    loss of digits   the layer in which the shadow in binary64 sees the most error born.
    knock-out        the layer that takes away the most harm where it alone is in binary32.

The first is blind where overflow saturates, the second names a layer of healthy programs too, and
the third misses what needs two places at once.
"""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from fpsim.torch import machine  # noqa: E402
from ipu.frontends.processes.diagnosing import diagnose_program  # noqa: E402
from ipu.frontends.processes.programs import ProgramError, run_file  # noqa: E402
from ipu.run.harm import harm_of  # noqa: E402
from ipu.run.replaying import replaying  # noqa: E402
from ipu.run.restoring import NOTHING_RESTORED, Restoring  # noqa: E402
from ipu.run.ways import Way  # noqa: E402
from tests.ipu.frontends.hospital import BAR  # noqa: E402
from tests.ipu.frontends.torch.hospital.programs import (  # noqa: E402
    ILLNESSES,
    MODELS,
    program_text,
)
from tests.tiers import reaches  # noqa: E402

STEPS = 4
#: Illnesses of the stage amidst the model that a format brings on and that reach the loss.
OF_THE_STAGE = ("variance of a norm", "softmax without maximum", "large vocabulary")


def first_not_finite(report):
    """Of all results that are told; "" where none is."""
    kinds = ("NaN", "infinity")
    rows = [row for row in report["births"] if row["kind"] in kinds]
    return min(rows, key=lambda row: (row["step"], row["number"]))["layer"] if rows else ""


def largest_loss_of_digits(report):
    return report["shadow"]["layers"][0]["layer"]


def single_knock_out(run, replay, report, reference):
    """The best layer alone."""
    harms = {}
    for layer in dict.fromkeys(site.layer for site in run.sites(report)):
        sites = frozenset(s for s in run.sites(report) if s.layer == layer)
        harms[layer] = harm_of(replay(run.way, Restoring(sites), False).losses, reference)
    return min(harms, key=harms.__getitem__)


def named(path, policy):
    """The layers that each names."""
    run = machine(policy, count=True)

    def body(again):
        with again:
            run_file(path, [])

    replay = replaying(run, STEPS, body, (ProgramError,))
    report = replay(run.way, NOTHING_RESTORED, True).report
    reference = replay(Way.parse("fp32"), NOTHING_RESTORED, False).losses
    result = diagnose_program(run, path, [], STEPS, seconds=math.inf)
    return {
        "diagnosis": {site.layer for site in result.necessary},
        "first NaN": {first_not_finite(report)},
        "loss of digits": {largest_loss_of_digits(report)},
        "knock-out": {single_knock_out(run, replay, report, reference)},
    }


@pytest.mark.minutes
def test_a_diagnosis_names_the_place_at_least_as_often(tmp_path):
    path, scores, n = tmp_path / "train.py", {}, 0
    for name in OF_THE_STAGE:
        illness = ILLNESSES[name]
        for model in MODELS if reaches("full") else ("mlp",):
            path.write_text(program_text(model, illness, illness.sizes[0]))
            n += 1
            for who, layers in named(path, illness.policy).items():
                scores[who] = scores.get(who, 0) + (layers == {"stage"})
    assert scores["diagnosis"] >= BAR * n, scores
    assert scores["diagnosis"] == max(scores.values()), scores
    assert scores["first NaN"] < n, scores
    print(scores, n)
