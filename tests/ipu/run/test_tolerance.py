"""Policy against policy by a tolerance from perturbation, and the sketches under it (law,
statistical)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import Context
from fpsim.records.formats import BINARY16, BINARY32, find_number_format
from ipu.experiments.cli import main
from ipu.learn import SGD, Trainer, dense
from ipu.ops import tanh
from ipu.run.digests import DigestFile
from ipu.run.native import machine
from ipu.run.noise import ResultNoise
from ipu.run.places import Place
from ipu.run.sketches import Sketch
from ipu.run.tolerance import compare_within
from tests.tiers import pick

X = np.random.default_rng(0).standard_normal((32, 16))
LABELS = np.arange(32) % 4


def network(x):
    return dense(tanh(dense(tanh(dense(x, 32, "first")), 32, "second")), 4, "head")


def written(path, policy, *, perturb="", wrong=1.0, steps=3, seed=0, sr=False):
    """The digests of a training; `wrong` multiplies the second layer's weights in the device."""
    run = machine(policy, seed=seed, sr=sr)
    if perturb:
        run.perturb(perturb, seed)
    with run.digest(path, sketch=True) as file:
        assert isinstance(file, DigestFile)
        trainer = Trainer(network, SGD(0.1), run=run)
        trainer.forward(X[:1])
        for name, variable in trainer.variables.items():
            if name.endswith("second/weights"):
                values = variable.array.values.astype(np.float32) * np.float32(wrong)
                variable.assign(trainer.device.from_host(values, variable.dtype))
        return [trainer.step(X, LABELS) for _ in range(steps)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The reference, and runs of it that are perturbed by units of both formats."""
    folder = tmp_path_factory.mktemp("digests")
    written(folder / "fp32", "fp32")
    for fmt in ("binary32", "binary16"):
        written(folder / fmt, "fp32", perturb=fmt)
    return folder


@pytest.mark.parametrize(("policy", "noise"), [
    ("fp16", "binary16"), ("fp32", "binary32"), ("mixed", "binary16")])
def test_another_policy_of_the_same_program_is_within(files, policy, noise, capsys):
    written(files / policy, policy)
    compliance = compare_within(files / "fp32", files / policy, [files / noise])
    assert compliance.is_within, str(compliance)
    assert compliance.matched - compliance.untold > 50
    assert main(["diff", str(files / "fp32"), str(files / policy), "--tolerance",
                 str(files / noise)]) == 0
    assert "within the tolerance: " in capsys.readouterr().out


@pytest.mark.parametrize(("policy", "wrong"), [("fp32", 1 + 2**-14), ("fp16", 1.05)])
def test_the_place_where_an_error_passes_it(files, tmp_path, policy, wrong, capsys):
    """Weights that are off by far less than binary16's unit are found in binary32."""
    noise = files / ("binary32" if policy == "fp32" else "binary16")
    written(tmp_path / "wrong", policy, wrong=wrong)
    compliance = compare_within(files / "fp32", tmp_path / "wrong", [noise])
    assert not compliance.is_within
    assert (compliance.line.layer, compliance.line.direction) == ("second", "forward")
    assert compliance.error == pytest.approx(wrong - 1, rel=0.8)
    assert main(["diff", str(files / "fp32"), str(tmp_path / "wrong"), "--tolerance",
                 str(noise)]) == 1
    assert " passes the tolerance " in capsys.readouterr().out


@pytest.mark.parametrize("layer", ["first", "second", "head"])
def test_one_layer_in_a_worse_format_is_named(files, tmp_path, layer):
    """Its results have fewer digits than the perturbation by binary32 explains."""
    written(tmp_path / "worse", {layer: "p=f32,c=f16,part=f32", "*": "fp32"})
    lines = (tmp_path / "worse").read_text().replace("\tbinary16\t", "\tbinary32\t")
    (tmp_path / "worse").write_text(lines)  # nobody said so
    compliance = compare_within(files / "fp32", tmp_path / "worse", [files / "binary32"])
    assert not compliance.is_within
    assert (compliance.line.layer, compliance.line.direction) == (layer, "evaluation")


def test_equal_precision_raises_no_alarm(tmp_path):
    """Statistical: trainings in binary16 with stochastic rounding, each of another seed.

    Perturbed runs of other seeds explain all of them: one alarm in 20 would be 5 %.
    """
    written(tmp_path / "fp32", "fp32")
    written(tmp_path / "noise", "fp32", perturb="binary16", seed=100)
    for seed in range(pick(8, 20, 40)):
        written(tmp_path / "run", "fp16", sr=True, seed=seed)
        compliance = compare_within(tmp_path / "fp32", tmp_path / "run", [tmp_path / "noise"])
        assert compliance.is_within, f"seed {seed}: {compliance}"


def test_what_a_perturbation_moves_by_all_of_itself_is_not_told(files, tmp_path, capsys):
    """A run beside runs that are perturbed by more than its results are: nothing can be told."""
    written(tmp_path / "fp32", "fp32")
    written(tmp_path / "noise", "fp32", perturb="E2M1FN")  # its unit roundoff times 8 is above 1
    compliance = compare_within(files / "fp32", tmp_path / "fp32", [tmp_path / "noise"])
    assert not compliance.can_tell
    assert not compliance.is_within
    assert main(["diff", str(files / "fp32"), str(tmp_path / "fp32"), "--tolerance",
                 str(tmp_path / "noise")]) == 3
    assert capsys.readouterr().out.startswith("cannot tell: a perturbation alone moves")


def test_a_larger_tolerance_of_several_runs(files, tmp_path):
    """Of several perturbed runs the largest error counts."""
    written(tmp_path / "other", "fp32", perturb="binary16", seed=1)
    one, both = (
        compare_within(files / "fp32", files / "binary16", runs)
        for runs in ([tmp_path / "other"], [tmp_path / "other", files / "binary16"]))
    assert one.error / one.tolerance >= both.error / both.tolerance
    assert both.error <= both.tolerance / 8


def test_a_choice_that_falls_differently_is_told(tmp_path, capsys):
    """One sign of 400 turns over by less than a unit; what follows inherits it, and no more."""
    x = np.random.default_rng(0).standard_normal(400).astype(np.float32)
    x[3] = 1e-9

    def run(name, moved, wrong=1.0, kind="relu"):
        place, ctx = Place(0, 0, 0, "net", "backward"), Context("binary32")
        gate = (x + np.float32(moved)) > 0
        with DigestFile(tmp_path / name, sketch=True, noise="binary32" * (name == "noise")) as file:
            for operation, values in (
                ("add", x + np.float32(moved)), (f"aten.{kind}_backward", np.where(gate, x + 2, 0)),
                ("aten.mul", 3 * np.where(gate, x + 2, 0) * np.float32(wrong)),
            ):
                file.add(operation, place, ctx.array(values))
        return tmp_path / name

    reference, noise, other = run("one", 0), run("noise", 1e-9), run("other", -1e-8)
    compliance = compare_within(reference, other, [noise])
    assert compliance.is_within
    assert compliance.first_choice.operation == 1
    assert main(["diff", str(reference), str(other), "--tolerance", str(noise)]) == 0
    assert "aten.relu_backward in net (backward), step 0, chose differently in a few elements" in (
        capsys.readouterr().out)
    worse = compare_within(reference, run("worse", -1e-8, wrong=3.0), [noise])
    assert worse.line.operation == 2
    assert not worse.is_within
    plain = [run(name, moved, kind="mul") for name, moved in (
        ("a", 0), ("noise", 1e-9), ("b", -1e-8))]
    named = compare_within(plain[0], plain[2], plain[1:2])
    assert not named.is_within
    assert named.line.operation == 1


def test_files_that_give_no_tolerance_are_refused(files, tmp_path, capsys):
    (tmp_path / "plain").write_text(
        (files / "fp32").read_text().replace(", sketch", "").replace("\t0,0x", "\n#\t0,0x"))
    written(files / "half", "fp16", steps=1)
    fp32, noise = files / "fp32", files / "binary32"
    for one, other, perturbed, words in (
        (tmp_path / "plain", fp32, noise, "has digests alone; write sketches too: --digest FILE"),
        (fp32, fp32, fp32, "is no perturbed run; write it with --perturb FORMAT"),
        (fp32, files / "half", noise, "write them with --perturb binary16"),
    ):
        assert main(["diff", str(one), str(other), "--tolerance", str(perturbed)]) == 2
        assert words in capsys.readouterr().err


def test_noise_is_one_unit_of_its_format():
    """Law: every finite number but zero moves by one unit, up as often as down."""
    values = np.float32([1.0, 1.5, -3.0, 2.0**-20, 0.0, np.inf, np.nan] * 400)
    for name in ("binary32", "binary16", "bfloat16"):
        fmt = find_number_format(name)
        moved = ResultNoise(fmt, 3)(values, BINARY32)
        is_moved = np.isfinite(values) & (values != 0)
        steps = moved[is_moved] - values[is_moved]
        exponents = np.frexp(values[is_moved])[1]
        units = steps / np.ldexp(1.0, exponents - fmt.precision)
        assert set(abs(units)) == {1.0}
        assert 0.4 < np.mean(units > 0) < 0.6
        assert np.array_equal(moved[values == 0], values[values == 0])
    assert ResultNoise(BINARY16, 0)(np.float32([65504.0]), BINARY16) <= 65504


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


def test_extremes_are_compared_by_where_they_are():
    """A mask of minus infinity is the lowest number where overflow saturates: no difference."""
    plain, broken, masked, saturated, elsewhere = (
        Sketch.of(np.array(x), largest) for x, largest in (
            ([1.0, 2.0], np.inf), ([1.0, np.nan], np.inf), ([1.0, -np.inf], np.inf),
            ([1.0, -65504.0], 65504.0), ([-np.inf, 1.0], np.inf)))
    assert plain.distance(broken) == masked.distance(broken) == masked.distance(elsewhere) == np.inf
    assert broken.distance(broken) == masked.distance(saturated) == 0
    for sketch in (plain, broken, saturated):
        assert sketch.distance(Sketch.read(str(sketch))) == 0
