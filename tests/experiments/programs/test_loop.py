"""The loop of the programs: golden (messages, totals), law (resuming changes no bit)."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import replace

import click
import pytest

from ipu import ops
from ipu.experiments.cli import run as command_line
from ipu.experiments.programs.loop import TrainingLoop, run
from ipu.experiments.programs.options import ProgramOptions, options
from ipu.feed.data import digits
from ipu.learn.loss_scale import StaticLossScale
from ipu.learn.nn import dense
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16
from ipu.learn.train import Trainer
from ipu.machine import POPART_CHECKS, FpCtl


def asked(*arguments: str) -> ProgramOptions:
    """The options that a command line gives."""
    results = []
    command = options(lambda options: results.append(options))
    assert command_line(click.command()(command), arguments, "test") == 0
    return results[0]


def flat(x):
    return dense(ops.reshape(x, shape=(x.shape[0], 64)), 10, "only")


SMALL = ("--batch-size", "10", "--limit", "40", "--epochs", "2")


def loop(*arguments, because="", **changes):
    """A small training in place of the programs' networks: 40 digits, 4 steps per epoch."""
    trainer = Trainer(flat, SGD(0.1), policy=FP16, count=True,
                      **{"control": FpCtl(esr=True)} | changes)
    states = asked(*SMALL, *arguments)
    return TrainingLoop("test", trainer, replace(digits(), because=because), states)


def bits(trainer):
    return {name: v.array.values.tobytes() for name, v in trainer.variables.items()}


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
    run_options = loop("--no-warm-up")
    assert run(run_options) == 0
    assert "warmup" not in capsys.readouterr().out
    assert run_options.batches.position == 8


@pytest.mark.parametrize("last", [1, 3, 4, 6])
def test_interrupted_and_resumed_is_never_interrupted(last, tmp_path, capsys):
    reference = loop("--no-warm-up")
    assert run(reference) == 0
    output = capsys.readouterr().out.splitlines()
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
    assert bits(again.trainer) == bits(reference.trainer)
    resumed = capsys.readouterr().out.splitlines()
    assert resumed[1] == f"resumed after batch {last}"
    assert resumed[-1] == output[-1]

    def shown(lines):
        return [line.rpartition(",")[0] for line in lines if line.startswith("epoch")]

    assert shown(resumed) == shown(output)[-len(shown(resumed)) :]
    assert [x for x in resumed if x.startswith(("  ", "$"))] == [
        x for x in output if x.startswith(("  ", "$"))
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

    run_options = loop("--no-warm-up")
    monkeypatch.setattr("builtins.print", left)
    with pytest.raises(BrokenPipeError):
        run(run_options)


def test_a_full_disk_stops_with_one_sentence(tmp_path, monkeypatch, capsys):
    assert run(loop("--epochs", "1", "--checkpoint", str(tmp_path), "--no-warm-up")) == 0
    capsys.readouterr()

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    program = loop("--checkpoint", str(tmp_path), "--no-warm-up")  # the folder can be written to
    monkeypatch.setattr(os, "fsync", full)
    assert run(program) == 1
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
