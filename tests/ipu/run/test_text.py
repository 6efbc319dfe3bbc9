"""Reports as text (golden)."""

from __future__ import annotations

import pytest

from ipu.run.judging import Judged
from ipu.run.text import COUNTERS, TRIAL_HEADS, trial_cells
from ipu.run.trials import Trial
from ipu.run.verdict import Effect
from ipu.run.ways import Way
from tests.ipu.run.runs import make_report, quiet_report


@pytest.mark.parametrize(
    "line",
    [
        "2 steps on mk2, p=f16,c=f16,part=f32, to nearest",
        "161 elements computed, 0.62% of them on the host; native operations: 0",
        "loss 2 → nan",
        "first ÷ 0: step 0, divide in optimizer (optimizer), 64 results",
        "constant 1e-08 becomes zero in binary16: optimizer (optimizer), 1 times",
        "updates swallowed by rounding: 75.0% of 16",
        "unit AMP_F16_F32, matmul: 100.0% of the multiply-adds, 2 products",
    ],
)
def test_lines_of_a_run(line):
    assert line in str(make_report()).splitlines()


def test_the_layer_with_the_largest_share_of_lost_updates_is_told_where_there_is_one():
    report = make_report()
    report["swallowed"]["net.b"] |= {"swallowed": 8, "share": 1.0}
    assert "swallowed by rounding: 87.5% of 16; the largest share in net.b, 100.0%" in str(report)


def test_the_table_of_layers_has_the_worst_first():
    lines = str(make_report()).splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("layer"))
    assert all(name in lines[head] for name in COUNTERS.values())
    assert lines[head + 1].startswith("optimizer")
    assert len({len(line) for line in lines[head : head + 3]}) == 1


def test_a_report_stays_a_mapping():
    report = make_report()
    assert report["steps"] == 2
    assert dict(report) == report
    assert "did not" not in str(quiet_report())


def test_a_row_of_trials():
    judged = Judged("as good", effect=Effect(-0.02, 0.05), pairs=8, note="at most +0.5 %")
    trial = Trial(Way.parse("fp16+sr"), judged, 1.0, {"INVALID": 1234}, 1.0, 1.5, [1.0])
    cells = trial_cells(trial)
    assert len(cells) == len(TRIAL_HEADS)
    assert cells == ("fp16+sr", "as good (at most +0.5 %)", "1", "-2 % ± 5 %", "8", "0", "1,234",
                     "0", "0", "× 1.00", "× 1.50")
