"""Checkpoints of several processes (law: resumed with any number of them is never stopped)."""

from __future__ import annotations

import json
import re

import pytest

from ipu.learn.checkpoint.lock import FolderLock
from ipu.members.checkpoints import MANIFEST, Checkpoints
from ipu.members.group import Processes
from ipu.members.local_transport import run_local
from tests.ipu.members.trainings import plan, share
from tests.ipu.plan.networks import batch, trainer

REPLICAS = 4


def run(folder, processes, steps, *, save_every=1, resume=True, replicas=REPLICAS, **choices):
    """What each process leaves: digest, registers, and where it started."""
    work_plan = plan(replicas, "tf_ring")

    def work(transport):
        group = Processes(transport, replicas)
        training = trainer(work_plan, group=group, count=True, **choices)
        with Checkpoints(folder, group) as checkpoints:
            start = checkpoints.latest() if resume else None
            local = group.own(replicas)
            if start is not None:
                training.forward(batch(0, 2)[0])
                checkpoints.resume(training, start)
            while training.steps < steps:
                x, labels = batch(training.steps, work_plan.samples(2))
                training.step(share(x, work_plan, local), share(labels, work_plan, local))
                if training.steps % save_every == 0:
                    checkpoints.save(training)
        group.finish(training)
        registers = [
            (w.device.status_word, w.device.counts.total("results")) for w in training.workers
        ]
        return group.digest(training), registers, start, group.saved

    return run_local(processes, work)


def test_a_training_goes_on_with_another_number_of_processes(tmp_path):
    ((uninterrupted, registers, _, _),) = run(tmp_path / "whole", 1, 4, save_every=9)
    folder = tmp_path / "cut"
    assert {start for _, _, start, _ in run(folder, 2, 1)} == {None}
    assert {start for _, _, start, _ in run(folder, 4, 2)} == {1}
    ((_, _, start, saved),) = run(folder, 1, 3)
    assert (start, saved) == (2, 3)
    results = run(folder, 2, 4)
    assert {digest for digest, *_ in results} == {uninterrupted}
    # Flags, status and counts too, whichever process had them before.
    assert [row for _, rows, _, _ in results for row in rows] == registers


def test_the_last_two_complete_steps_are_kept(tmp_path):
    run(tmp_path, 2, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-2", "step-3"]
    names = sorted(path.name for path in (tmp_path / "step-3").iterdir())
    assert names == [MANIFEST, "shared.npz", *(f"worker-{r}.npz" for r in range(REPLICAS))]
    text = (tmp_path / "step-3" / MANIFEST).read_text()
    manifest = json.loads(text)
    assert (manifest["replicas"], manifest["step"], len(manifest["files"])) == (4, 3, 5)
    # People read it: each file stands in a line of its own.
    assert sum(".npz" in line for line in text.splitlines()) == 5


class Source:
    position = 0


def test_every_replica_keeps_its_position_in_the_data(tmp_path):
    def work(transport):
        group, source = Processes(transport, 2), Source()
        training = trainer(plan(2, "tree"), group=group)
        training.step(*batch(0, 4))
        source.position = 10 + transport.rank
        later = Source()
        with Checkpoints(tmp_path, group) as checkpoints:
            checkpoints.save(training, source)
            checkpoints.resume(training, 1, later)
        return later.position

    assert run_local(2, work) == [10, 11]


def test_a_step_without_manifest_does_not_exist(tmp_path):
    run(tmp_path, 2, 3)
    (tmp_path / "step-3" / MANIFEST).unlink()
    assert [start for _, _, start, _ in run(tmp_path, 2, 3)] == [2, 2]


def test_a_damaged_file_is_named(tmp_path):
    run(tmp_path, 2, 2)
    path = tmp_path / "step-2" / "worker-3.npz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"worker-3\.npz' is not the file of its manifest"):
        run(tmp_path, 1, 3)
    (tmp_path / "step-2" / MANIFEST).write_text("{")
    with pytest.raises(ValueError, match="is no manifest"):
        run(tmp_path, 2, 3)
    (tmp_path / "step-2" / MANIFEST).write_text('{"version": 0}')
    with pytest.raises(ValueError, match="has version 0, this fpsim reads 1"):
        run(tmp_path, 2, 3)


@pytest.mark.parametrize("name", ["step", "replicas", "files"])
def test_a_manifest_without_an_entry_is_named(tmp_path, name):
    run(tmp_path, 2, 2)
    path = tmp_path / "step-2" / MANIFEST
    saved = json.loads(path.read_text())
    for value in (None, []):
        path.write_text(json.dumps(saved | {name: value}))
        with pytest.raises(ValueError, match=f"damaged in its entry '{name}'; remove this step"):
            run(tmp_path, 2, 3)


FORGED = {
    "other size": ({"shared.npz": ["0" * 64, 1]}, "is not the file of its manifest"),
    "other digest": ({"worker-0.npz": ["0" * 64, -1]}, "is not the file of its manifest"),
    "no digest": ({"worker-1.npz": None}, "'files': 'worker-1.npz' has no digest and size"),
    "a number": ({"worker-1.npz": [1, 2]}, "'files': 'worker-1.npz' has no digest and size"),
    "a path": ({"../step-1/shared.npz": ["", 0]}, "'../step-1/shared.npz' is no file of this step"),
    "a system's": ({"/etc/passwd": ["", 0]}, "'files': '/etc/passwd' is no file of this step"),
    "a replica": ({"worker-4.npz": ["", 0]}, "'files': 'worker-4.npz' is no file of this step"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_manifest_is_refused_in_a_sentence(name, tmp_path):
    run(tmp_path, 2, 1)
    entries, sentence = FORGED[name]
    path = tmp_path / "step-1" / MANIFEST
    manifest = json.loads(path.read_text())
    if name == "other digest":
        entries = {"worker-0.npz": ["0" * 64, manifest["files"]["worker-0.npz"][1]]}
    path.write_text(json.dumps(manifest | {"files": manifest["files"] | entries}))
    with pytest.raises(ValueError, match=re.escape(sentence) + ".*; remove this step to go on"):
        run(tmp_path, 2, 2)


def test_a_manifest_without_a_file_is_refused_in_a_sentence(tmp_path):
    run(tmp_path, 2, 1)
    path = tmp_path / "step-1" / MANIFEST
    manifest = json.loads(path.read_text())
    del manifest["files"]["worker-3.npz"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match=r"'files': 'worker-3\.npz' is missing; remove this step"):
        run(tmp_path, 4, 2)
    path.write_text(json.dumps(manifest | {"replicas": True}))
    with pytest.raises(ValueError, match="damaged in its entry 'replicas'; remove this step"):
        run(tmp_path, 4, 2)
    path.write_bytes(b" " * ((1 << 24) + 1))
    with pytest.raises(ValueError, match=r"no manifest .it has 16777217 bytes, at most 167"):
        run(tmp_path, 4, 2)


def test_what_a_killed_training_leaves_is_removed(tmp_path):
    """Its probe, its drafts, and steps without manifest; nothing that others have put there."""
    run(tmp_path, 2, 2)
    (tmp_path / ".shared-0123456789abcdef").touch()
    (tmp_path / "step-9").mkdir()
    for name in ("shared.npz", ".worker-1.npz.abcdefg_.draft", ".manifest.json.0bcdefg_.draft"):
        (tmp_path / "step-9" / name).write_text("half")
    for name in ("step-8", "step-07", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("")
    (tmp_path / "step-07" / MANIFEST).write_text("{}")
    assert {start for _, _, start, _ in run(tmp_path, 2, 3)} == {2}
    names = {"step-2", "step-3", "step-8", "step-07", "other"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert (tmp_path / "step-8" / "mine.txt").exists()


def errors(processes, work):
    """The sentence that each worker ends with."""

    def one(transport):
        try:
            work(transport)
        except ValueError as error:
            return str(error)
        return ""

    return run_local(processes, one)


def test_a_file_that_one_worker_misses_is_told_by_all(tmp_path):
    """Otherwise the others begin, and hear of a worker that has finished."""
    run(tmp_path, 2, 2)
    (tmp_path / "step-2" / "worker-3.npz").unlink()

    def work(transport):
        group = Processes(transport, REPLICAS)
        training = trainer(plan(REPLICAS, "tf_ring"), group=group)
        training.forward(batch(0, 2)[0])
        with Checkpoints(tmp_path, group) as checkpoints:
            checkpoints.resume(training, 2)

    first, second = errors(2, work)
    assert first == second
    assert "worker-3.npz' is not the file of its manifest" in first


def test_a_folder_that_the_workers_do_not_share_is_refused(tmp_path):
    """Its checkpoints would be in pieces, and the next run would start anew without a word."""

    def work(transport):
        Checkpoints(tmp_path / str(transport.rank), Processes(transport, 2))

    (tmp_path / "1").mkdir()
    first, second = errors(2, work)
    for rank, sentence in enumerate((first, second)):
        assert sentence.startswith(f"checkpoint={str(tmp_path / str(rank))!r} of worker 1")
        assert "is not the folder of worker 0; name a folder that all workers reach" in sentence
    assert not list((tmp_path / "0").iterdir())


def test_a_folder_that_another_training_saves_in_is_refused_on_every_worker(tmp_path):
    """Its steps would be removed while it writes them."""
    run(tmp_path, 2, 3)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    other = FolderLock(tmp_path)
    for sentence in errors(2, lambda t: Checkpoints(tmp_path, Processes(t, 2))):
        assert "is in use by another training of this process; close that one" in sentence
    other.release()
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    with pytest.raises(ValueError, match="seed is 5 there"):
        run(tmp_path, 2, 4, seed=6)
    assert len(run(tmp_path, 2, 4)) == 2, "what was refused has left the folder"


def test_other_replicas_and_other_trainings_are_refused(tmp_path):
    run(tmp_path, 2, 1)
    with pytest.raises(ValueError, match="is of 4 replicas, the training has 2; any number of"):
        run(tmp_path, 2, 2, replicas=2)
    with pytest.raises(ValueError, match="another training: seed is 5 there and 6 here"):
        run(tmp_path, 2, 2, seed=6)


def test_weights_that_drift_apart_are_kept_for_each_replica(tmp_path):
    ((uninterrupted, *_),) = run(tmp_path / "whole", 1, 2, private_updates=True, resume=False)
    run(tmp_path / "cut", 2, 1, private_updates=True)
    assert {digest for digest, *_ in run(tmp_path / "cut", 4, 2, private_updates=True)} == {
        uninterrupted
    }


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is not a folder that can be written to"):
        run(tmp_path / "file", 1, 1)
    run(tmp_path, 2, 1)
    (tmp_path / "step-2").write_text("in the way")
    with pytest.raises(OSError, match=r"worker [01]: checkpoint=.* could not"):
        run(tmp_path, 2, 2)


def test_a_step_that_is_written_again_and_fails_does_not_exist(tmp_path, monkeypatch):
    """Its files may be of both writings, so the manifest of the first goes before the second."""
    run(tmp_path, 1, 1)
    assert (tmp_path / "step-1" / MANIFEST).exists()
    full = json.dumps({"error": "no space left"}).encode()
    monkeypatch.setattr(Checkpoints, "_written", lambda *_: full)
    with pytest.raises(OSError, match="no space left"):
        run(tmp_path, 1, 1, resume=False)
    assert not (tmp_path / "step-1" / MANIFEST).exists()
