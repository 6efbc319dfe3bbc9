"""The guide's estimators train on one worker and on two (golden, differential: TensorFlow)."""

from __future__ import annotations

import re
import struct
from dataclasses import replace

import numpy as np
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


def as_mnist(folder, images, labels):
    """Files of MNIST's form with these images, for training and for tests."""
    (folder / "mnist").mkdir()
    for stem in ("train", "t10k"):
        head = struct.pack(">4i", 2051, *images.shape)
        (folder / "mnist" / f"{stem}-images-idx3-ubyte").write_bytes(head + images.tobytes())
        head = struct.pack(">2i", 2049, len(labels))
        (folder / "mnist" / f"{stem}-labels-idx1-ubyte").write_bytes(head + labels.tobytes())


#: Kernels and biases as checkpoints name them, in the order of the layers.
NAMES = [
    f"sequential/{layer}/{kind}"
    for layer in ("conv2d", "dense", "dense_1") for kind in ("kernel", "bias")
]


def native_gradients(tf, values, images, labels):
    """TensorFlow's own for the guide's network, written with its plain functions."""
    watched = [tf.constant(value) for value in values]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        kernel, bias, *dense = watched
        x = tf.nn.relu(tf.nn.conv2d(images, kernel, 1, "VALID") + bias)
        x = tf.reshape(tf.nn.max_pool2d(x, 2, 2, "VALID"), (len(images), -1))
        x = tf.nn.relu(x @ dense[0] + dense[1]) @ dense[2] + dense[3]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, x)
        gradients = tape.gradient(tf.reduce_mean(losses), watched)
    return [gradient.numpy() for gradient in gradients]


@pytest.mark.source("S1-18", "S1-28")
def test_the_horovod_example_trains_its_network_for_its_steps_and_evaluates_nothing(
    tmp_path, monkeypatch
):
    """64 images are one batch in any order; the first step has moved Adam's mean to 0.1 g.

    Images are noise: in a plain background the largest of a window is a tie, whose gradient the
    machine divides and TensorFlow does not.
    """
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (64, 28, 28), np.uint8)
    labels = draw.integers(0, 10, 64, np.uint8)
    as_mnist(tmp_path, images, labels)
    monkeypatch.setenv("FPSIM_DATA", str(tmp_path))
    for name, value in (("INSTANCES", "1"), ("INDEX", "0")):
        prefix = "POPDIST_NUM_" if name == "INSTANCES" else "POPDIST_INSTANCE_"
        monkeypatch.setenv(prefix + name, value)
    monkeypatch.setenv("FPSIM_TRANSPORT", "local")
    (listing,) = (listing for listing in LISTINGS if "horovod" in listing.name)
    steps = ("--num-steps", "1", "--model-dir", str(tmp_path / "model"))
    log = run(replace(listing, arguments=steps), tmp_path, with_log=True)
    assert "Loss for final step" in log
    assert "valuation" not in log
    tf = pytest.importorskip("tensorflow")
    before, after = (
        tf.train.load_checkpoint(str(tmp_path / "model" / f"model.ckpt-{step}")) for step in (0, 1)
    )
    assert after.get_tensor("global_step") == 1
    values = [before.get_tensor(name) for name in NAMES]
    assert [value.shape for value in values] == [
        (3, 3, 1, 32), (32,), (13 * 13 * 32, 64), (64,), (64, 10), (10,),
    ]
    expected = native_gradients(
        tf, values, (images / np.float32(255))[..., np.newaxis], labels.astype(np.int32)
    )
    for name, gradient in zip(NAMES, expected, strict=True):
        mean = after.get_tensor(f"{name}/Adam")
        np.testing.assert_allclose(mean, 0.1 * gradient, rtol=1e-3, atol=1e-6, err_msg=name)
