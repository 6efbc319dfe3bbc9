"""The guide's estimators train on one worker (golden: what the guide says of them)."""

from __future__ import annotations

import re

import pytest

from ipu.experiments.listings.workers import LISTINGS
from tests.experiments.listings.runs import run
from tests.vectors import data_of_documents, documents


@pytest.mark.tier("full")
@pytest.mark.source("TensorFlow user guide §7.4, §7.8")
@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.name)
def test_twenty_steps_lower_the_loss(listing, tmp_path, monkeypatch):
    monkeypatch.setenv("FPSIM_DATA", str(data_of_documents()))
    monkeypatch.setenv("TF_CONFIG", '{"cluster":{"worker":["localhost:3737"]},"task":'
                       '{"type":"worker","index":0}}')
    printed = run(listing, tmp_path, with_log=True)
    first = re.search(r"^INFO:tensorflow:loss = (\d+\.\d+), step = 0", printed, re.MULTILINE)
    last = re.search(r"Loss for final step: (\d+\.\d+)", printed)
    assert float(last[1]) < 0.7 * float(first[1])


@pytest.mark.tier("full")
@pytest.mark.source("S1-18", "S1-28", "TensorFlow user guide §7.4, §7.7, §7.8")
@pytest.mark.parametrize("listing", LISTINGS, ids=lambda listing: listing.name)
def test_two_processes_keep_their_weights_equal(listing, tmp_path, monkeypatch):
    """As the guide starts them: in two terminals, and by mpirun."""
    monkeypatch.setenv("FPSIM_DATA", str(data_of_documents()))
    programs = pytest.importorskip("tests.ipu.frontends.tensorflow.workers.processes")
    tensorflow = pytest.importorskip("tensorflow")
    path = tmp_path / f"{listing.name}.py"
    path.write_text(listing.program(documents()), encoding="utf-8")
    line = programs.command(path, *listing.arguments, "--model-dir", str(tmp_path), tf1=True)
    if "horovod" in listing.name:
        texts = [programs.mpirun(2, line)]
    else:
        with programs.workers(programs.tf_configs(2), line, line) as started:
            done = [programs.ended(process) for process in started]
        assert [status for status, *_ in done] == [0, 0], done[0][2][-4000:]
        texts = [errors for *_, errors in done]
    for text in texts:
        first = re.findall(r"loss = (\d+\.\d+), step = 0", text)
        last = re.findall(r"Loss for final step: (\d+\.\d+)", text)
        assert float(last[0]) < 0.7 * float(first[0])
    load = tensorflow.train.load_checkpoint
    one, other = load(str(tmp_path)), load(str(tmp_path / "worker-1"))
    assert len(one.get_variable_to_shape_map()) == 21
    for name in one.get_variable_to_shape_map():
        assert (one.get_tensor(name) == other.get_tensor(name)).all(), name
