"""Digests: the first operation at which two runs part (golden, law)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fpsim import BINARY16, Context
from fpsim.kernels.elementwise.hashing import xxh3
from ipu.experiments.cli import main
from ipu.learn import Adam, Trainer, dense
from ipu.ops import relu, tanh
from ipu.run.changes import Changes
from ipu.run.digests import DigestFile, first_difference
from ipu.run.native import machine
from ipu.run.places import Place
from tests.tiers import pick

HALF = Context(BINARY16)
X = np.random.default_rng(0).standard_normal((16, 8))
LABELS = np.arange(16) % 4


def network(x):
    return dense(relu(tanh(dense(x, 8, "hidden"))), 4, "head")


def exchanged(x):
    return dense(tanh(relu(dense(x, 8, "hidden"))), 4, "head")


def written(path, model=network, steps=3, keep=None, **choices):
    """The digests of a training."""
    run = machine("fp16", sr=True, **choices)
    with run.digest(path, keep):
        trainer = Trainer(model, Adam(0.01, epsilon=1e-4), run=run)
        return [trainer.step(X, LABELS) for _ in range(steps)]


def test_equal_runs_are_equal_files(tmp_path, capsys):
    """Digests move no bit, and a file has nothing of the process or the time."""
    losses = [written(tmp_path / name) for name in "ab"]
    plain = Trainer(network, Adam(0.01, epsilon=1e-4), run=machine("fp16", sr=True))
    assert losses[0] == losses[1] == [plain.step(X, LABELS) for _ in range(3)]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert first_difference(tmp_path / "a", tmp_path / "b") is None
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert "equal, operation by operation" in capsys.readouterr().out
    text = (tmp_path / "a").read_text()
    assert [f"# step {n}\t" in text for n in range(4)] == [True, True, True, False]
    assert {"hidden", "head"} <= {line.split("\t")[2] for line in text.splitlines()[1:]
                                  if not line.startswith("#")}


@pytest.mark.parametrize("bit", [0, 13, 31])
def test_one_flipped_bit_among_many_results_is_found(tmp_path, bit):
    """Of 10^6 results (10^8 in the full tier) by the operation and element where it stands."""
    operations, size = pick(20, 100, 100), pick(50_000, 1_000_000, 1_000_000)
    values = np.random.default_rng(1).random(size).astype(np.float32)
    flipped, (wrong, element) = values.copy(), (operations * 3 // 4, size * 2 // 3)
    flipped.view(np.uint32)[element] ^= np.uint32(1 << bit)
    for name in "ab":
        with DigestFile(tmp_path / name, keep=wrong) as file:
            for n in range(operations):
                here = flipped if name == "b" and n == wrong else values
                place = Place(n // 10, 0, 0, f"layer{n % 10}", "forward")
                file.add("mm", place, Context("binary32").array(here))
    difference = first_difference(tmp_path / "a", tmp_path / "b")
    assert (difference.operation, difference.one.layer) == (wrong, f"layer{wrong % 10}")
    assert (difference.values.elements, difference.values.first) == (1, (element,))
    assert difference.values.values == (float(values[element]), float(flipped[element]))
    if bit == 0:
        assert difference.values.ulps == 1


def test_a_changed_constant_is_found_in_the_first_update(tmp_path):
    written(tmp_path / "a")
    written(tmp_path / "b", changes=Changes(eps=2e-4))
    difference = first_difference(tmp_path / "a", tmp_path / "b")
    assert difference.one.direction == "optimizer"
    assert difference.one.place.startswith("0/")
    assert "the bits of its results differ" in str(difference)
    assert f"--keep {difference.operation}" in str(difference)


def test_an_exchanged_order_is_found_where_it_is(tmp_path, capsys):
    written(tmp_path / "a")
    written(tmp_path / "b", exchanged)
    difference = first_difference(tmp_path / "a", tmp_path / "b")
    assert (difference.one.name, difference.other.name) == ("tanh", "relu")
    assert difference.one.place == "0/0/0"
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 1
    assert "the runs compute different things: tanh in" in capsys.readouterr().out


def test_values_that_were_kept_are_told_in_ulps_of_the_format(tmp_path):
    for name, value in (("a", 1.0), ("b", 1.0 + 2**-9)):
        with DigestFile(tmp_path / name, lambda: "train.py:7", keep=0) as file:
            operands = HALF.array([1.0, value - 2]), HALF.array([2.0, 2.0])
            file.add("add", Place(0, 0, 0, "net", "forward"), HALF.array([3.0, value]), operands)
    assert str(first_difference(tmp_path / "a", tmp_path / "b")) == (
        "operation 0: add in net (forward), step 0, train.py:7: the bits of its results differ in "
        "1 of 2 elements, by up to 2 ulps of binary16; the first at [1]: 1.0 and 1.001953125; "
        "its operands differ too, which no operation before gave: operand 1 in 1 of 2"
    )


def test_an_operation_that_parts_from_equal_operands_is_told(tmp_path):
    for name, value in (("a", 3.0), ("b", 3.001953125)):
        with DigestFile(tmp_path / name, keep=0) as file:
            file.add("add", Place(0, 0, 0, "net", "forward"), HALF.array([value]),
                     (HALF.array([1.0]), HALF.array([2.0])))
    assert str(first_difference(tmp_path / "a", tmp_path / "b")).endswith(
        "its 2 operands have equal bits")


def test_a_line_names_the_program(tmp_path):
    """FILE:LINE of this file: the network's in forward, the step's in backward and update."""
    written(tmp_path / "a", steps=1)
    lines = [row.split("\t") for row in (tmp_path / "a").read_text().splitlines()[1:-1]]
    files = {row[-1].rpartition(":")[0] for row in lines}
    assert files == {__file__}
    of_tanh = next(row[-1] for row in lines if row[4] == "tanh")
    number = int(of_tanh.rpartition(":")[2])
    assert "relu(tanh(dense" in Path(__file__).read_text().splitlines()[number - 1]


def test_the_order_of_values_and_their_shape_are_hashed(tmp_path):
    values = np.arange(12.0)
    arrays = [values, values[::-1], values.reshape(3, 4), values.reshape(4, 3),
              values.reshape(3, 4).T]
    with DigestFile(tmp_path / "a") as file:
        for x in arrays:
            file.add("copy", Place(0, 0, 0, "", "forward"), HALF.array(x))
        file.add("copy", Place(0, 0, 0, "", "forward"), Context("bfloat16").array(values))
    rows = [row.split("\t")[7] for row in (tmp_path / "a").read_text().splitlines()[1:-1]]
    assert len(set(rows)) == len(rows) == 6


def test_a_long_step_is_written_in_order_with_one_digest_of_all(tmp_path):
    """More operations than wait to be written at a time."""
    n, place = 1300, Place(4, 1, 2, "net", "backward")
    values = [HALF.array([k % 7, k]) for k in range(n)]
    with DigestFile(tmp_path / "a", lambda: "train.py:7") as file:
        for x in values:
            file.add("mm", place, x)
    rows = (tmp_path / "a").read_text().splitlines()[1:]
    start = xxh3(np.frombuffer(b"binary16 (2,)", np.uint8))
    digests = [f"{xxh3(x.carrier, start):016x}" for x in values]
    assert rows[:-1] == [
        f"{k}\t4/1/2\tnet\tbackward\tmm\tbinary16\t2\t{digest}\ttrain.py:7"
        for k, digest in enumerate(digests)]
    total = xxh3(np.array([int(digest, 16) for digest in digests], np.uint64))
    assert rows[-1] == f"# step 4\t{total:016x}"


def test_a_run_that_ends_early_is_told(tmp_path):
    written(tmp_path / "a", steps=2)
    written(tmp_path / "b", steps=3)
    assert "the first run has ended, the other has" in str(
        first_difference(tmp_path / "a", tmp_path / "b"))


def test_workers_whose_models_differ_are_told_by_their_updates(tmp_path, capsys):
    """Each has data of its own; the second worker's weights of the layer b part in step 1."""
    for worker in (0, 1):
        with DigestFile(tmp_path / f"w{worker}") as file:
            for step in range(3):
                for layer in "ab":
                    place = Place(step, 0, worker, layer, "forward")
                    file.add("mm", place, HALF.array([1.0 + worker]))
                    apart = worker and layer == "b" and step > 0
                    file.add("sub", place._replace(direction="optimizer", replica=0),
                             HALF.array([2.0 + apart]))
    files = [str(tmp_path / f"w{worker}") for worker in (0, 1)]
    assert main(["diff", "--workers", files[0], files[0]]) == 0
    assert "the workers' updates are equal" in capsys.readouterr().out
    assert main(["diff", "--workers", *files]) == 1
    assert "sub in b (optimizer), step 1: the bits" in capsys.readouterr().out


def test_zeros_of_both_signs_differ(tmp_path):
    for name, zero in (("a", 0.0), ("b", -0.0)):
        with DigestFile(tmp_path / name) as file:
            file.add("add", Place(0, 0, 0, "", "forward"), HALF.array([zero]))
    assert first_difference(tmp_path / "a", tmp_path / "b").operation == 0


@pytest.mark.parametrize(("text", "words"), [
    ("no digests\n", "holds no digests of a run; write it with"),
    ("", "holds no digests of a run"),
])
def test_a_file_without_digests_is_refused(tmp_path, capsys, text, words):
    for name in "ab":
        (tmp_path / name).write_text(text)
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert words in capsys.readouterr().err


def test_digests_of_another_hash_are_refused(tmp_path, capsys):
    """One sentence tells what each file has."""
    written(tmp_path / "a", steps=1)
    new = (tmp_path / "a").read_text()
    (tmp_path / "b").write_text(new.replace("digest 3", "digest 2").replace("XXH3", "XXH64"))
    for names, sentence in (
        ("ab", "has digests by XXH3 (layout 3) and {b} has digests by XXH64 (layout 2)"),
        ("ba", "has digests by XXH64 (layout 2) and {a} has digests by XXH3 (layout 3)"),
    ):
        one, other = (str(tmp_path / name) for name in names)
        words = sentence.format(**{names[1]: repr(other)})
        for options in ((), ("--tolerance", one)):
            assert main(["diff", one, other, *options]) == 2
            assert f"{one!r} {words}" in capsys.readouterr().err.replace("\n", " ")
