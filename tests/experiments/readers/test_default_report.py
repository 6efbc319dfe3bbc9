"""Every number of the default report, computed again from the data inside of its page (law)."""

from __future__ import annotations

import re

import pytest

from ipu.experiments.cli import main
from ipu.experiments.lab.catalogue import catalogue
from tests.experiments.readers.pages import Reading, Table, agrees, sections_of
from tests.experiments.readers.sums import read_stochastic_accumulation, read_swamping
from tests.experiments.readers.trainings import read_digits, read_loss_scales

READERS = {
    "swamping": read_swamping, "stochastic_accumulation": read_stochastic_accumulation,
    "digits_training": read_digits, "loss_scale_sweep": read_loss_scales,
}


@pytest.fixture(scope="module")
def sections(tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    assert main(["report", "--quick", "--out", str(out)]) == 0
    return sections_of((out / "index.html").read_text(encoding="utf-8"))


def test_every_default_experiment_has_a_reader(sections):
    assert set(sections) == {e.name for e in catalogue().values() if e.default} == set(READERS)


@pytest.mark.parametrize("name", READERS)
def test_the_sentence_follows_from_the_data(sections, name):
    answer, _, rows = sections[name]
    reading = Reading(answer)
    READERS[name](reading, Table(rows))
    reading.is_read()


@pytest.mark.parametrize("name", READERS)
def test_a_number_that_is_not_the_data_s_is_noticed(sections, name):
    """Each number of the sentence in turn is changed in its last digit."""
    answer, _, rows = sections[name]
    places = [m for m in re.finditer(r"(?<![\w^])\d+(?:\.\d+)?(?![\w^])", answer)
              if not m.group().startswith(("16", "32"))]
    assert places
    noticed = 0
    for place in places:
        last = place.end() - 1
        wrong = answer[:last] + str((int(answer[last]) + 1) % 10) + answer[last + 1 :]
        reading = Reading(wrong)
        try:
            READERS[name](reading, Table(rows))
            reading.is_read()
        except AssertionError:
            noticed += 1
    assert noticed == len(places), (noticed, len(places))


def test_tables_repeat_the_data(sections):
    """Notes under tables that give results."""
    _, notes, rows = sections["swamping"]
    table = Table(rows)
    shares = [row["kept"] for row in table.where(part="table", arithmetic="FP16")]
    numbers = re.findall(r"\(it is ([\d.]+)\)", notes)
    assert len(numbers) == 2
    assert all(any(agrees(text, value) for value in shares) for text in numbers)
