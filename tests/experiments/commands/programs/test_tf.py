"""fpsim tf: programs run unedited, options reach the machine (golden)."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest

from ipu.experiments.cli import main

PROGRAM = """
import sys
from tensorflow.python import ipu
import tensorflow as tf
from ipu.frontends.tensorflow.engine.current import current
ipu.config.IPUConfig().configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategyV1()
result = strategy.run(tf.function(lambda x: x / 3.0), [tf.constant(1.0)])
print(sys.argv[1:], float(result) == 0.333251953125, current().choices.seed)
"""


def test_a_missing_program_is_one_line(capsys):
    assert main(["tf", "missing.py"]) == 2
    assert "missing.py" in capsys.readouterr().err


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is not None, reason="tensorflow is installed"
)
def test_without_tensorflow_the_command_says_how_to_get_it(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text("")
    assert main(["tf", str(program)]) == 2
    assert 'install it with: pip install "tensorflow' in capsys.readouterr().err


needs_tensorflow = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="tensorflow is not installed; run: make test-tensorflow",
)


PIPELINE = """
import tensorflow as tf
from tensorflow.python import ipu
config = ipu.config.IPUConfig()
config.auto_select_ipus = 2
config.configure_ipu_system()
with ipu.ipu_strategy.IPUStrategyV1().scope():
    layers = [tf.keras.layers.Dense(n, input_shape=(4,)) for n in (4, 2)]
    model = tf.keras.Sequential(layers)
    model.compile("sgd", "mse", steps_per_execution=4)
    model.set_pipeline_stage_assignment([0, 1])
    model.set_pipelining_options(4)
    data = tf.data.Dataset.from_tensors((tf.ones((3, 4)), tf.ones((3, 2)))).repeat(4)
    model.fit(data, verbose=0)
"""


@pytest.mark.source("S0-31")
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs tensorflow")
def test_a_report_has_the_plan_as_words_files_and_a_picture(tmp_path):
    program, out = tmp_path / "program.py", tmp_path / "out"
    program.write_text(PIPELINE)
    assert main(["tf", "--report", str(out), str(program)]) == 0
    words = json.loads((out / "report.json").read_text())["plan"]
    assert words[0] == "2 stages on IPU 0 1, grouped, 7 slots"
    assert any(line.startswith("IPU 1: peak") for line in words)
    assert "slots, time and memory" in (out / "index.html").read_text()
    names = {path.name for path in (out / "plan").iterdir()}
    assert names == {"schedule.json", "account.json", "trace.json", "plan.png", "which"}
    page = (out / "plan" / "which" / "index.html").read_text()
    assert "4 micro-batches of an update" in page
    assert "config.auto_select_ipus = " in page
    account = json.loads((out / "plan" / "account.json").read_text())
    assert [row["parameter_bytes"] for row in account["figures"]] == [4 * 20, 4 * 10]
    assert account["stash"]["held"] == [3, 1]


@needs_tensorflow
def test_a_program_gets_its_arguments_and_the_machine_its_choices(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    out = tmp_path / "out"
    options = ["--policy", "f16", "--seed", "3", "--count", "--report", str(out)]
    assert main(["tf", *options, str(program), "--x", "1"]) == 0
    report = json.loads((out / "report.json").read_text())
    assert report["launches"] == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines()[-1] == "['--x', '1'] True 3"
    assert "0 steps on mk2, p=f16,c=f16,part=f32, to nearest" in captured.err
    assert str(out / "index.html") in captured.err


@needs_tensorflow
def test_values_in_binary64_are_told_and_stand_on_the_page(tmp_path, capsys):
    program, out = tmp_path / "program.py", tmp_path / "out"
    program.write_text(f"import tensorflow as tf\ntf.random.set_seed(1)\n{PIPELINE}")
    options = ["--policy", "fp16", "--shadow", "1", "--report", str(out)]
    assert main(["tf", *options, str(program)]) == 0
    shadow = json.loads((out / "report.json").read_text())["shadow"]
    assert [row["step"] for row in shadow["losses"]] == [0] * 4  # a loss for each micro-batch
    assert all(abs(row["machine"] / row["shadow"] - 1) < 0.01 for row in shadow["losses"])
    layers = {row["layer"] for row in shadow["layers"]}
    assert len({name for name in layers if name.startswith("dense")}) == 2
    assert "shadow in binary64 of 1 steps: error born by layer" in capsys.readouterr().err
    assert "<h2>Beside binary64</h2>" in (out / "index.html").read_text()


@needs_tensorflow
def test_a_pattern_that_no_layer_matches_is_one_line(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(PIPELINE)
    assert main(["tf", "--policy", "fp16+dese=f32", str(program)]) == 2
    error = capsys.readouterr().err
    assert "policy pattern 'dese' matches no layer" in error
    assert "did you mean 'dense" in error
    assert main(["tf", "--policy", "fp16+dense*=f32", str(program)]) == 0


@needs_tensorflow
@pytest.mark.parametrize(
    ("options", "message"),
    [(["--policy", "none"], "none"), (["--policy", "fp16+cache=mxfp8"], "torch alone"),
     (["--compare", "fp16+cache=mxfp8"], "torch alone"), (["--compare", ""], "one way at least"),
     (["--policy", "fp16+scale=3"], "not a power of two"),
     (["--compare", "fp16", "--sr"], "leave --policy and --sr out"), (["--seed", "x"], "seed"),
     (["--reference", "--count"], "leave reports out"), (["--target", "mk9"], "mk9"),
     (["--reference", "--sr"], "leave --policy and --sr out"),
     (["--reference", "--policy", "fp16"], "leave --policy and --sr out"),
     (["--reference", "--shadow", "1"], "leave reports out"), (["--shadow", "0"], "shadow"),
     (["--shadow", "1", "--compare", "fp32,fp16"], "leave --compare out"),
     (["--nosuch"], "No such option")],
)
def test_bad_options_are_one_line(tmp_path, capsys, options, message):
    program = tmp_path / "program.py"
    program.write_text("raise RuntimeError\n")
    assert main(["tf", *options, str(program)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0


@needs_tensorflow
def test_a_trap_is_told_in_ten_lines_and_an_error_in_one(tmp_path, capsys):
    program = tmp_path / "trap.py"
    program.write_text(TRAP)
    assert main(["tf", str(program)]) == 1
    error = capsys.readouterr().err
    lines = error[error.index("fpsim: ") :].splitlines()
    assert lines[0].startswith(f"fpsim: {program}:9: MachineError: Tiles in excepted state")
    assert f"built at {program}:8" in error
    assert len(lines) <= 10
    program.write_text("import tensorflow as tf\ntf.ones(2) + tf.ones(3)\n")
    assert main(["tf", str(program)]) == 1
    assert f"fpsim: {program}:2: InvalidArgumentError: " in capsys.readouterr().err


TRAP = """
import tensorflow as tf
from tensorflow.python import ipu
config = ipu.config.IPUConfig()
config.floating_point_behaviour.div0 = True
config.configure_ipu_system()
def divided(x):
    return x / 0
ipu.ipu_strategy.IPUStrategyV1().run(tf.function(divided), [tf.constant(1.0)])
"""

TRAINING = """
import tensorflow as tf
from tensorflow.python import ipu
w = tf.Variable(tf.fill([4, 2], 300.0), name="head/kernel")
@tf.function
def step(x):
    with tf.GradientTape() as tape:
        with tf.name_scope("head"):
            y = x @ w
        loss = tf.reduce_mean(y * y)
    (slope,) = tape.gradient(loss, [w])
    w.assign_sub(1e-6 * slope)
    return loss
for _ in range(2):
    loss = ipu.ipu_strategy.IPUStrategyV1().run(step, [tf.ones([1, 4])])
print("loss", float(loss))
"""


@needs_tensorflow
@pytest.mark.tier("full")
def test_ways_run_side_by_side(tmp_path, capfd):
    program, out = tmp_path / "train.py", tmp_path / "out"
    program.write_text(TRAINING)
    assert main(["tf", "--compare", "fp32,fp16,fp16+sr", "--pairs", "1", "--report", str(out),
                 str(program)]) == 0
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "train.py: side by side" in page
    reports = {}
    for way in ("fp32", "fp16", "fp16+sr"):
        assert f'download="{way}-index.html"' in page
        reports[way] = json.loads((out / way / "report.json").read_text())
    assert reports["fp32"]["losses"][0] == 1200.0**2
    assert reports["fp16"]["layers"]["head"]["forward"]["OVERFLOW"] == 0
    assert reports["fp16"]["first"][0]["flag"] == "OVERFLOW"
    assert reports["fp16"]["swallowed"]["head"]["share"] == 1
    assert [r["stochastic_rounding"] for r in reports.values()] == [False, False, True]
    assert capfd.readouterr().out.count("loss ") == 3


@needs_tensorflow
def test_a_nudged_run_differs_from_itself_by_rounding(tmp_path, capfd):
    """The noise floor of a comparison: the first step is equal, the next one is not quite."""
    program = tmp_path / "train.py"
    program.write_text(TRAINING)
    losses = {}
    for nudge in ([], ["--nudge"]):
        path = tmp_path / f"report{len(nudge)}.json"
        options = ["--unconfigured", "--pair", "0", *nudge, "--json", str(path)]
        assert main(["tf", *options, str(program)]) == 0
        losses[len(nudge)] = json.loads(path.read_text())["losses"]
    plain, moved = losses.values()
    assert plain[0] == moved[0]
    assert 0 < abs(moved[1] / plain[1] - 1) < 1e-5


@needs_tensorflow
def test_a_program_beside_the_machine_is_told_everywhere(tmp_path, capfd):
    """Without a strategy's scope TensorFlow computes, whatever the policy says."""
    program, out = tmp_path / "native.py", tmp_path / "out"
    program.write_text("import tensorflow as tf\nprint(float(tf.reduce_sum(tf.ones([3]))))\n")
    words = "nothing was computed on the machine"
    assert main(["tf", str(program)]) == 0
    assert words not in capfd.readouterr().err
    for options in (["--policy", "fp16"], ["--sr"], ["--report", str(out)], ["--count"]):
        assert main(["tf", *options, str(program)]) == 0
        error = capfd.readouterr().err
        assert error.count(words) == 1
        assert "IPUStrategy().scope()" in error
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "Nothing was computed on the machine." in page
    assert "peaks for a change" not in page
    assert main(["tf", "--compare", "fp32,fp16", "--report", str(out), str(program)]) == 0
    assert "fpsim: fp16  nothing on the machine" in capfd.readouterr().err
    assert "Nothing was computed on the machine." in (out / "index.html").read_text()
    program.write_text("import nosuch\n")
    assert main(["tf", "--report", str(out), str(program)]) == 1
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "Mend what stopped the program: " in page
    assert "peaks for a change" not in page


UNSEEDED = """
import random
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
config = ipu.utils.create_ipu_config()
ipu.utils.configure_ipu_system(ipu.utils.auto_select_ipus(config, 1))
xs = np.random.rand(64, 4).astype(np.float32)
ys = np.random.default_rng().integers(0, 3, 64).astype(np.int32)
data = tf.data.Dataset.from_tensor_slices((xs, ys)).shuffle(64).repeat()
queue = ipu.ipu_infeed_queue.IPUInfeedQueue(data.batch(16, drop_remainder=True))
sizes = random.choice([8, 12, 16]), 3
def step(total, x, y):
    h = tf.nn.dropout(tf.layers.dense(x, sizes[0], tf.nn.relu), rate=0.1)
    logits = tf.layers.dense(h, sizes[1])
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    return total + loss, tf.train.GradientDescentOptimizer(0.1).minimize(loss)
with ipu.scopes.ipu_scope("/device:IPU:0"):
    train = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(3, step, [0.0], queue))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(queue.initializer)
    print("loss", session.run(train)[0])
"""


@needs_tensorflow
def test_ways_of_an_unseeded_program_of_tensorflow_1_begin_alike(tmp_path, capfd):
    """Weights, order of the data, dropout: a scale by which nothing is rounded moves no loss."""
    program, out = tmp_path / "train.py", tmp_path / "out"
    program.write_text(UNSEEDED)
    ways = ["fp32", "fp32+scale=8388608", "fp16"]
    assert main(["tf", "--tf1", "--compare", ",".join(ways), "--pairs", "1", "--report", str(out),
                 str(program)]) == 0
    losses = [json.loads((out / way / "report.json").read_text())["losses"] for way in ways]
    assert len(losses[0]) == 3
    assert losses[0] == losses[1]
    assert losses[2][0] == pytest.approx(losses[0][0], rel=1e-3)
    assert losses[2] != losses[0]
    words = capfd.readouterr()
    assert len({line for line in words.out.splitlines()[:2] if line.startswith("loss ")}) == 1
    assert "fpsim: fp32+scale=8388608" in words.err


NUMBERS = """
import numpy as np
import tensorflow as tf
from tensorflow.python import ipu
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.configure_ipu_system()
w = tf.Variable([1.0, 1.0, -2.0, -2.0, 0.0], name="net/w")
strategy = ipu.ipu_strategy.IPUStrategyV1()
program = tf.function(lambda: w * 4.0)
for _ in range(2):
    print(np.array(strategy.run(program) / 4.0).view(np.int32).tolist())
"""


@needs_tensorflow
def test_variables_are_perturbed_once_and_results_each_time(tmp_path, capsys):
    """By a unit of binary32, up or down by the seed; formats below hide that."""
    program = tmp_path / "program.py"
    program.write_text(NUMBERS)

    def codes(*options):
        assert main(["tf", *options, str(program)]) == 0
        first, second = map(json.loads, capsys.readouterr().out.splitlines()[-2:])
        return np.array(first), np.array(second)

    before, _ = codes()
    runs = [codes("--perturb", "binary32", "--seed", str(seed)) for seed in range(4)]
    steps = np.array(runs) - before
    # A unit of the variable, of what reads it and of the product, each two codes below a power of
    # two, where codes are half as far apart.
    assert 0 < abs(steps[..., :4]).max() <= 6
    assert not steps[..., 4].any()
    assert any(np.any(first != again) for first, again in runs)
    assert len({str(run) for run in runs}) > 1
    repeated = codes("--perturb", "binary32", "--seed", "1")
    assert np.array_equal(repeated, runs[1])
    assert main(["tf", "--perturb", "binary23", str(program)]) == 2
    assert "binary32" in capsys.readouterr().err


def test_native_is_of_torch_alone(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.touch()
    assert main(["tf", "--native", str(program)]) == 2
    assert "--native is of fpsim torch alone" in capsys.readouterr().err
