"""The tutorial's programs: golden (defaults, messages, totals), law (resuming changes no bit)."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import click
import pytest

from experiments.cli import run as command_line
from experiments.lab.catalogue import catalogue
from experiments.programs import float32_parameter_updates, stochastic_rounding
from experiments.programs.loop import Loop, run
from experiments.programs.options import Options, options
from fpsim import get_threads, set_threads
from ipu.feed.data import digits
from ipu.learn import ops
from ipu.learn.loss_scale import LEARNING_RATE, StaticLossScale
from ipu.learn.nn import dense
from ipu.learn.optim import SGD, Adam
from ipu.learn.policy import FP16
from ipu.learn.train import Trainer
from ipu.machine import POPART_CHECKS, FpCtl
from tests.tiers import pick

PROGRAMS = {
    "stochastic_rounding": stochastic_rounding,
    "float32_parameter_updates": float32_parameter_updates,
}


def asked(*arguments: str) -> Options:
    """The options that a command line gives."""
    found = []
    command = options(lambda options: found.append(options))
    assert command_line(click.command()(command), arguments, "test") == 0
    return found[0]


def flat(x):
    return dense(ops.reshape(x, shape=(x.shape[0], 64)), 10, "only")


SMALL = ("--batch-size", "10", "--limit", "40", "--epochs", "2")


def loop(*arguments, because="", **changes):
    """A small training in place of the programs' networks: 40 digits, 4 steps per epoch."""
    trainer = Trainer(flat, SGD(0.1), policy=FP16, count=True,
                      **{"control": FpCtl(esr=True)} | changes)  # fmt: skip
    given = asked(*SMALL, *arguments)
    return Loop("test", trainer, replace(digits(), because=because), given)


def bits(trainer):
    return {name: v.array.values.tobytes() for name, v in trainer.variables.items()}


# The loop -------------------------------------------------------------------------------------


@pytest.mark.source("S4-56")
def test_an_epoch_of_warm_up_comes_first_and_is_not_counted(capsys):
    assert run(loop()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [f"data: {digits().source}", "Executing warmup run..."]
    assert [line.partition(":")[0] for line in lines[2:4]] == ["epoch 1", "epoch 2"]
    assert all("(float32 total " in line and "images/s" in line for line in lines[2:4])
    assert lines[-1] == "Program ran successfully"
    assert any(line.startswith("$FP_STS") for line in lines)
    assert any(line.startswith("  only, ") for line in lines)


def test_warm_up_can_be_left_out(capsys):
    chosen = loop("--no-warm-up")
    assert run(chosen) == 0
    assert "warmup" not in capsys.readouterr().out
    assert chosen.batches.position == 8


@pytest.mark.parametrize("last", [1, 3, 4, 6])
def test_interrupted_and_resumed_is_never_interrupted(last, tmp_path, capsys):
    whole = loop("--no-warm-up")
    assert run(whole) == 0
    said = capsys.readouterr().out.splitlines()
    part = loop("--no-warm-up", "--checkpoint", str(tmp_path))

    class Stopping:
        """A trainer that is interrupted in the middle of one step."""

        def __init__(self, trainer):
            self.trainer = trainer

        def step(self, *batch):
            if part.batches.position == last:
                os.kill(os.getpid(), signal.SIGINT)
            return self.trainer.step(*batch)

        def __getattr__(self, name):
            return getattr(self.trainer, name)

    part.trainer = Stopping(part.trainer)
    assert run(part) == 130
    error = capsys.readouterr().err
    assert f"interrupted after batch {last}; the state is in {tmp_path}" in error
    again = loop("--no-warm-up", "--checkpoint", str(tmp_path))
    assert run(again) == 0
    assert bits(again.trainer) == bits(whole.trainer)
    resumed = capsys.readouterr().out.splitlines()
    assert resumed[1] == f"resumed after batch {last}"
    assert resumed[-1] == said[-1]

    def shown(lines):
        return [line.rpartition(",")[0] for line in lines if line.startswith("epoch")]

    assert shown(resumed) == shown(said)[-len(shown(resumed)) :]
    assert [x for x in resumed if x.startswith(("  ", "$"))] == [
        x for x in said if x.startswith(("  ", "$"))
    ]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    assert run(loop("--no-warm-up", "--checkpoint", str(tmp_path))) == 0
    with pytest.raises(ValueError, match=r"is of another run: .* limit=40.* asked for: .*seed=1"):
        loop("--no-warm-up", "--checkpoint", str(tmp_path), "--seed", "1")


def test_the_same_digits_are_the_same_run_whatever_they_stand_in_for(tmp_path):
    assert run(loop("--no-warm-up", "--checkpoint", str(tmp_path))) == 0
    again = loop("--no-warm-up", "--checkpoint", str(tmp_path), because="the files are gone")
    assert again.batches.position == 8


def test_a_reader_who_leaves_is_the_command_line_s_business(monkeypatch):
    def left(*_, **__):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    chosen = loop("--no-warm-up")
    monkeypatch.setattr("builtins.print", left)
    with pytest.raises(BrokenPipeError):
        run(chosen)


def test_a_full_disk_stops_with_one_sentence(tmp_path, monkeypatch, capsys):
    assert run(loop("--epochs", "1", "--checkpoint", str(tmp_path), "--no-warm-up")) == 0
    capsys.readouterr()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert run(loop("--checkpoint", str(tmp_path), "--no-warm-up")) == 1
    error = capsys.readouterr().err
    assert error.startswith("stopped after batch 8: checkpoint=")
    assert "could not be written (No space left on device)" in error
    monkeypatch.undo()
    assert run(loop("--checkpoint", str(tmp_path), "--no-warm-up")) == 0
    assert "resumed after batch 4" in capsys.readouterr().out


def test_a_trap_stops_with_the_registers(capsys):
    scale = StaticLossScale(2.0**20)
    assert run(loop("--no-warm-up", control=POPART_CHECKS, loss_scale=scale)) == 1
    out = capsys.readouterr().out
    assert "stopped by an exception in batch 1: " in out
    assert "OFLO 0x1" in out
    assert "ran successfully" not in out


# Programs -------------------------------------------------------------------------------------

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


@pytest.mark.source("S4-52")
def test_stochastic_rounding_is_on_unless_disabled():
    for stochastic in (True, False):
        trainer = stochastic_rounding.build("float16", 8, stochastic, asked())
        assert trainer.device.control == FpCtl(esr=stochastic)


@pytest.mark.source("S4-34")
def test_the_resnet_divides_the_rate_of_momentum_by_the_loss_scale():
    trainer = stochastic_rounding.build("float16", 8, True, asked("--loss-scaling-factor", "64"))
    assert trainer.loss_scale == StaticLossScale(64.0, LEARNING_RATE)
    assert trainer.optimizer == SGD(0.01, momentum=0.9)
    assert str(trainer.policy) == "p=f16,c=f16,part=f32"


@pytest.mark.source("S4-42")
@pytest.mark.source("S4-39")
def test_mixed_keeps_single_parameters_and_arms_every_exception():
    trainer = float32_parameter_updates.build("mixed", asked("--use-float16-partials"))
    assert str(trainer.policy) == "p=f32,c=f16,part=f16"
    assert trainer.device.control == FpCtl(inv=True, div0=True, oflo=True, nanoo=True)
    assert trainer.optimizer == Adam(0.01, epsilon=1e-4)
    single = float32_parameter_updates.build("float32", asked("--use-float16-partials"))
    assert str(single.policy) == "p=f32,c=f32,part=f32"


def test_one_thread_or_two_train_the_same_bits():
    found = []
    before = get_threads()
    for threads in (1, 2):
        set_threads(threads)
        try:
            trainer = stochastic_rounding.build("float16", 8, True, asked("--learning-rate", "1"))
            some = digits((32, 32, 3)).learn[:2]
            trainer.step(some.values, some.labels)
        finally:
            set_threads(before)
        found.append(bits(trainer))
    assert found[0] == found[1]


def test_the_resnet_has_the_layers_that_its_depth_says():
    for depth, blocks in ((8, 1), (14, 2)):
        trainer = stochastic_rounding.build("float16", depth, True, asked())
        trainer.forward(digits((32, 32, 3)).learn[:1].values)
        kernels = [n for n, v in trainer.variables.items() if len(v.shape) == 4]
        assert len([n for n in kernels if "skip" not in n]) + 1 == depth
        assert len([n for n in kernels if "skip" in n]) == 2
        assert sum("norm/gamma" in n for n in trainer.variables) == 3 * blocks


# Command lines --------------------------------------------------------------------------------


@pytest.mark.source("S4-55")
def test_defaults_are_the_tutorial_s():
    given = asked()
    assert (given.batch_size, given.epochs) == (32, 5)
    assert (given.loss_scaling_factor, given.learning_rate) == (256.0, 0.01)
    assert not given.use_float16_partials


@pytest.mark.source("S4-51")
@pytest.mark.parametrize("depth", ["7", "2", "9", "0"])
def test_a_depth_that_is_not_6n_and_2_ends_with_the_tutorial_s_message(depth, capsys):
    assert stochastic_rounding.main(["float16", depth]) == 1
    assert capsys.readouterr().out.startswith(
        "Please choose a number of layers of the form 6N + 2 for a whole number N, such as 8, 14,"
    )


@pytest.mark.parametrize(
    ("program", "line", "said"),
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
def test_bad_input_is_one_line_and_status_two(program, line, said, capsys):
    assert PROGRAMS[program].main(line.split()) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"{program}: ")
    assert said in err
    assert err.count("\n") == 1


def test_programs_are_launched_by_the_tutorial_s_names_and_are_no_experiments():
    folder = Path(stochastic_rounding.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(folder.parent)}
    for name in PROGRAMS:
        assert name not in catalogue()
        command = [sys.executable, str(folder / f"{name}.py"), "--help"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert f"Usage: {name} " in done.stdout
