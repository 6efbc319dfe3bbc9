"""fpsim tf: programs run unedited, options reach the machine (golden)."""

from __future__ import annotations

import importlib.util
import json

import pytest

from ipu.experiments.cli import main

PROGRAM = """
import sys
from tensorflow.python import ipu
import tensorflow as tf
from ipu.frontends.tensorflow.engine.machine import current
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
    assert 'pip install "fpsim[tensorflow]"' in capsys.readouterr().err


@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None,
    reason="tensorflow is not installed; run: make test-tensorflow",
)
def test_a_program_gets_its_arguments_and_the_machine_its_choices(tmp_path, capsys):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    told = tmp_path / "told.json"
    options = ["--policy", "f16", "--seed", "3", "--report", str(told)]
    assert main(["tf", *options, str(program), "--x", "1"]) == 0
    assert json.loads(told.read_text())["launches"] == 1
    assert capsys.readouterr().out.splitlines()[-1] == "['--x', '1'] True 3"
    assert main(["tf", "--policy", "none", str(program)]) == 2
