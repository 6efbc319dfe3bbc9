"""Policy against policy by a tolerance from perturbation, and the sketches under it (law)."""

from __future__ import annotations

import numpy as np
import pytest

from ipu.experiments.cli import main
from ipu.learn import SGD, Trainer, dense
from ipu.ops import tanh
from ipu.run.digests import DigestFile
from ipu.run.native import machine
from ipu.run.sketches import Sketch
from ipu.run.tolerance import compare_within
from tests.tiers import pick

X = np.random.default_rng(0).standard_normal((32, 16))
LABELS = np.arange(32) % 4


def network(x):
    return dense(tanh(dense(tanh(dense(x, 32, "first")), 32, "second")), 4, "head")


def written(path, policy, *, perturb=False, wrong=1.0, steps=3):
    """The digests of a training; `wrong` multiplies the second layer's weights in the device."""
    run = machine(policy)
    with run.digest(path, sketch=True) as file:
        assert isinstance(file, DigestFile)
        trainer = Trainer(network, SGD(0.1), run=run)
        trainer.forward(X[:1])
        for name, variable in trainer.variables.items():
            values = variable.array.values.astype(np.float32)
            if perturb:
                values = np.nextafter(values, np.float32(np.inf) * (-1) ** np.arange(
                    values.size, dtype=np.float32).reshape(values.shape))
            if name.endswith("second/weights"):
                values = values * np.float32(wrong)
            variable.assign(trainer.device.from_host(values, variable.dtype))
        return [trainer.step(X, LABELS) for _ in range(steps)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digests")
    written(folder / "fp32", "fp32")
    written(folder / "perturbed", "fp32", perturb=True)
    return folder


@pytest.mark.parametrize("policy", ["fp16", "fp32", "mixed"])
def test_another_policy_of_the_same_program_is_within(files, policy, capsys):
    written(files / policy, policy)
    compliance = compare_within(files / "fp32", files / policy, files / "perturbed")
    assert compliance.is_within, str(compliance)
    assert compliance.matched > 50
    assert main(["diff", str(files / "fp32"), str(files / policy), "--tolerance",
                 str(files / "perturbed")]) == 0
    assert "within the tolerance: " in capsys.readouterr().out


@pytest.mark.parametrize(("policy", "wrong"), [("fp32", 1 + 2**-14), ("fp16", 1.05)])
def test_the_place_where_an_error_passes_it(files, tmp_path, policy, wrong, capsys):
    """Weights that are off by far less than binary16's unit are found in binary32."""
    written(tmp_path / "wrong", policy, wrong=wrong)
    compliance = compare_within(files / "fp32", tmp_path / "wrong", files / "perturbed")
    assert not compliance.is_within
    assert (compliance.line.layer, compliance.line.direction) == ("second", "forward")
    assert compliance.error == pytest.approx(wrong - 1, rel=0.8)
    assert main(["diff", str(files / "fp32"), str(tmp_path / "wrong"), "--tolerance",
                 str(files / "perturbed")]) == 1
    assert " passes the tolerance " in capsys.readouterr().out


def test_files_without_sketches_are_refused(files, tmp_path, capsys):
    with machine("fp32").digest(tmp_path / "plain") as file:
        file.close()
    (tmp_path / "plain").write_text(
        (files / "fp32").read_text().replace(", sketch", "").replace("\t0x", "\n#\t0x"))
    assert main(["diff", str(tmp_path / "plain"), str(files / "fp32"), "--tolerance",
                 str(files / "fp32")]) == 2
    assert "has digests alone; write sketches too: --digest FILE --sketch" in (
        capsys.readouterr().err)


def test_a_sketch_estimates_the_distance():
    """Statistical: 200 pairs with a fixed seed; a mean square of 1 within 4 of its deviations."""
    random = np.random.default_rng(1)
    shares = []
    for size in random.integers(1, pick(2_000, 5_000, 5_000), 200):
        a, b = random.standard_normal((2, size))
        estimate = Sketch.of(a).distance(Sketch.of(b))
        shares.append((estimate / np.linalg.norm(a - b)) ** 2)
    assert np.mean(shares) == pytest.approx(1.0, abs=4 * np.sqrt(2 / 32 / 200))
    assert np.std(shares) < 0.4


def test_a_sketch_of_what_is_not_finite_is_far_from_all():
    plain, broken = (Sketch.of(np.array(x)) for x in ([1.0, 2.0], [1.0, np.nan]))
    assert plain.distance(broken) == broken.distance(broken) == np.inf
    assert plain.distance(Sketch.read(str(plain))) == 0

