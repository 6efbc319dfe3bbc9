"""Every number of the other experiments' sentences, from the data inside of their page (law)."""

from __future__ import annotations

import pytest

from ipu.experiments.cli import main
from ipu.experiments.lab.report import write_report
from tests.experiments.readers import blocks, execution, sums, trainings
from tests.experiments.readers.pages import Reading, Table, sections_of

QUICK = {
    "two_d_blocks": blocks.read_two_d_blocks, "scale_rules": blocks.read_scale_rules,
    "is_sr_unbiased": blocks.read_is_sr_unbiased, "delayed_scaling": blocks.read_delayed_scaling,
    "hadamard_trades": blocks.read_hadamard_trades, "running_loss": sums.read_running_loss,
    "k_split": sums.read_k_split,
}
SLOW = {
    "accumulation_order": sums.read_accumulation_order,
    "accumulation_dtype": sums.read_accumulation_dtype,
    "parameter_update_methods": trainings.read_update_methods,
    "fp8_training": trainings.read_study, "mnist_training": trainings.read_mnist,
    "input_formats": trainings.read_input_formats,
    "training_loop": execution.read_training_loop,
    "reduction_orders": execution.read_reduction_orders,
    "replica_rounding": execution.read_replica_rounding,
}
SLOW_MARKS = [pytest.param(name, marks=pytest.mark.tier("full")) for name in SLOW]


@pytest.mark.parametrize("name", [*QUICK, *SLOW_MARKS])
def test_the_sentence_follows_from_the_data(name, tmp_path):
    assert main(["run", name, "--quick", "--out", str(tmp_path)]) == 0
    page = write_report(tmp_path).read_text(encoding="utf-8")
    answer, _, rows = sections_of(page)[name]
    reading = Reading(answer)
    (QUICK | SLOW)[name](reading, Table(rows))
    reading.is_read()
