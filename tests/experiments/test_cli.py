"""Bad input ends in one line and status 2; help and lists need nothing heavy."""

from __future__ import annotations

import os
import subprocess
import sys

import click
import pytest

from ipu.experiments.cli import COMMANDS, commands, main, run

BAD = {
    "rn": "Did you mean 'run'",
    "run swampin": "Did you mean 'swamping'",
    "run": "Missing argument",
    "run swamping --seed abc": "seed='abc'",
    "run swamping --seed -1": "seed='-1'",
    "run swamping --seed 18446744073709551616": "2**64 - 1",
    "report --out /dev/null/x": "out='/dev/null/x' cannot be written to",
    "run swamping --out /dev/null": "cannot be written to",
    "list bogus": "kind='bogus' is not known",
    "--bogus": "bogus",
}


@pytest.mark.parametrize("line", BAD)
def test_bad_input_is_one_line_and_status_two(line, capsys):
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("fpsim: ")
    assert BAD[line] in err
    assert err.count("\n") == 1


def test_the_table_of_commands_is_what_there_is():
    for name in COMMANDS:
        assert commands.get_command(None, name).name == name


def test_help_and_lists_are_answered(capsys):
    for line in (
        [],
        ["--help"],
        ["list"],
        ["list", "formats"],
        ["list", "units"],
        ["run", "--help"],
    ):
        assert main(line) == 0
    out = capsys.readouterr().out
    assert "swamping" in out
    assert "bfloat16" in out
    assert "V100_F16_F32" in out
    assert "AMP_F16_F32.exact" in out


@pytest.mark.parametrize("buffering", [[], ["-u"]])
def test_a_reader_who_has_left_is_no_error(buffering):
    there, here = os.pipe()
    os.close(there)
    command = [sys.executable, *buffering, "-m", "ipu.experiments.cli", "list"]
    done = subprocess.run(command, stdout=here, stderr=subprocess.PIPE)
    os.close(here)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_imports_no_numerics():
    code = (
        "import sys, ipu.experiments.cli as c; c.main(['--help']); c.main(['list']);"
        "sys.exit(bool({'numpy', 'numba', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_only_an_interruption_is_called_one(capsys):
    @click.command()
    @click.argument("error")
    def fails(error):
        raise {"^C": KeyboardInterrupt, "short": EOFError,
               "kept": KeyboardInterrupt("a and b are kept")}[error]

    assert run(fails, ["^C"], "fpsim") == 130
    assert capsys.readouterr().err.endswith("fpsim: interrupted\n")
    assert run(fails, ["kept"], "fpsim") == 130
    assert capsys.readouterr().err.endswith("fpsim: interrupted; a and b are kept\n")
    with pytest.raises(EOFError):
        run(fails, ["short"], "fpsim")
