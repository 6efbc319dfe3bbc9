"""Options that the programs share, and what both programs do with them (golden)."""

from __future__ import annotations

import click
import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.experiments.cli import run as command_line
from ipu.experiments.programs import float32_parameter_updates, stochastic_rounding
from ipu.experiments.programs.options import ProgramOptions, options
from tests.tiers import pick

PROGRAMS = {
    "stochastic_rounding": stochastic_rounding,
    "float32_parameter_updates": float32_parameter_updates,
}


def asked(*arguments: str) -> ProgramOptions:
    """The options that a command line gives."""
    results = []
    command = options(lambda options: results.append(options))
    assert command_line(click.command()(command), arguments, "test") == 0
    return results[0]


TINY = ["--batch-size", "2", "--limit", "4", "--epochs", "1", "--no-warm-up"]


RUNS = {
    "stochastic_rounding": pick(
        ["float16 8"],
        ["float16 8 --use-float16-partials", "float32 8", "float16 14"],
        ["float16 20"],
    ),
    "float32_parameter_updates": pick(
        ["mixed"], ["mixed --use-float16-partials", "float32"], ["mixed"]
    ),
}


@pytest.mark.source("S4-51")
@pytest.mark.source("S4-53")
@pytest.mark.source("S4-56")
@pytest.mark.parametrize(
    ("name", "line"), [(name, line) for name, lines in RUNS.items() for line in lines]
)
def test_programs_train_without_data_and_say_so(name, line, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FPSIM_DATA", str(tmp_path))
    assert PROGRAMS[name].main([*line.split(), *TINY]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "handwritten digits" in lines[0]
    assert "holds no" in lines[0]
    assert lines[1].startswith("epoch 1: loss ")
    assert ("float32 total" in lines[1]) == (not line.startswith("float32"))
    assert lines[-1] == "Program ran successfully"


@pytest.mark.source("X-07")
def test_logits_are_cast_where_the_tutorial_s_text_is_followed():
    """The loss is binary32 inside in any case, so both forms round once, and alike."""
    images = np.linspace(0, 1, 2 * 28 * 28).reshape(2, 28, 28, 1)
    runs = []
    for is_cast in (False, True):
        trainer = float32_parameter_updates.build("mixed", asked(), cast_logits=is_cast)
        assert trainer.forward(images).array.format is (BINARY32 if is_cast else BINARY16)
        losses = [trainer.step(images, np.array([0, 7])) for _ in range(2)]
        weights = [v.array.values.tobytes() for v in trainer.variables.values()]
        runs.append((losses, weights))
    assert runs[0] == runs[1]
    assert len(runs[0][1]) == 4


@pytest.mark.source("X-07")
def test_the_program_takes_the_text_s_form_too(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FPSIM_DATA", str(tmp_path))
    assert float32_parameter_updates.main(["mixed", "--cast-logits", *TINY]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Program ran successfully"


@pytest.mark.source("S4-55")
def test_defaults_are_the_tutorial_s():
    arguments = asked()
    assert (arguments.batch_size, arguments.epochs) == (32, 5)
    assert (arguments.loss_scaling_factor, arguments.learning_rate) == (256.0, 0.01)
    assert not arguments.use_float16_partials


@pytest.mark.parametrize(
    ("program", "line", "message"),
    [
        ("stochastic_rounding", "float64 8", "'float64' is not one of"),
        ("stochastic_rounding", "float16 8 --batch-size 0", "batch-size"),
        ("stochastic_rounding", "float16 8 --limit 10", "batch_size=32 is larger than the data"),
        ("stochastic_rounding", "float16 8 --loss-scaling-factor 0", "is not a loss scale"),
        ("float32_parameter_updates", "float16", "'float16' is not one of"),
        ("float32_parameter_updates", "mixed --loss-scaling-factor inf", "is not a loss scale"),
        ("float32_parameter_updates", "mixed --learning-rate -1", "is not a learning rate"),
        ("stochastic_rounding", "float16 8 --data-dir /there/is/none", "holds no cifar10/"),
        ("float32_parameter_updates", "mixed --data-dir /there/is/none", "holds no fashion-mnist/"),
        ("float32_parameter_updates", "mixed --disable-stochastic-rounding", "No such option"),
    ],
)
def test_bad_input_is_one_line_and_status_two(program, line, message, capsys):
    assert PROGRAMS[program].main(line.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"{program}: ")
    assert message in err
    assert err.count("\n") == 1
