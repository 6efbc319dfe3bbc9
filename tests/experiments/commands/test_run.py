"""fpsim run: what the shell completes (golden); the runs themselves are in test_series."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = "import sys; from ipu.experiments.cli import main; sys.exit(main([]))"


def under(**environment: str) -> str:
    """What the program prints where the shell asks for a completion."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | environment,
                          capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    ("words", "offered"),
    [("re", ["report"]), ("run swam", ["swamping"]), ("list u", ["units"]), ("bench tr", ["train"]),
     ("data cif", ["cifar10"]), ("run swamping --qu", ["--quick"])],
)
def test_the_shell_completes_commands_names_and_options(words, offered):
    place = str(len(words.split(" ")))
    lines = under(_FPSIM_COMPLETE="bash_complete", COMP_WORDS=f"fpsim {words}", COMP_CWORD=place)
    assert [line.partition(",")[2] for line in lines.splitlines()] == offered


def test_the_script_of_the_completion_is_printed():
    assert "_fpsim_completion fpsim" in under(_FPSIM_COMPLETE="bash_source")
