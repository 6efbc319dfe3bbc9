"""Commands that show something, and options that several have (golden, law)."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import click
import numpy as np
import pytest

from fpsim import BFLOAT16, BINARY16
from fpsim.inspect.profile import profile
from ipu.experiments.cli import main
from ipu.experiments.commands import series
from ipu.experiments.commands.exponents import PANELS, exponent_figure, losses
from ipu.experiments.commands.listing import KINDS
from ipu.experiments.commands.options import Seed, bad_input, completing, echo_json, read_formats
from ipu.experiments.lab.catalogue import catalogue
from tests.experiments.figures import assert_panels

SMALL, LARGE = np.float32([2.0**-30, 1.0, 1.0, 1.0]), np.float32([1e30, 1.0])


def test_the_largest_loss_is_named_with_its_share():
    pairs = [(name, profile(array, fmt)) for name, array in (("small", SMALL), ("large", LARGE))
             for fmt in (BINARY16, BFLOAT16)]
    assert list(losses(pairs)) == [
        "binary16: the largest loss is in large, where 0.00% of the elements underflow and 50.00% "
        "overflow",
        "bfloat16: nothing underflows or overflows",
    ]


def test_elements_that_are_not_finite_are_told_once_for_each_array():
    array = np.float32([np.nan, np.nan, np.inf, 1.0])
    pairs = [(name, profile(values, fmt)) for name, values in (("a", array), ("b", LARGE))
             for fmt in (BFLOAT16, BINARY16)]
    assert list(losses(pairs))[2:] == [
        "a: 50.00% of the elements are NaN and 25.00% infinite, which neither underflow nor "
        "overflow"
    ]


@pytest.mark.parametrize("n", [1, 2, PANELS + 3])
def test_there_is_a_panel_for_each_array_up_to_a_limit(n):
    pairs = [(f"array {i}", profile(SMALL, BINARY16)) for i in range(n)]
    assert_panels(exponent_figure(pairs), 2 * min(n, PANELS))


def test_a_unit_is_probed_as_a_line_and_as_json(capsys):
    assert main(["fingerprint", "--unit", "V100_F16_F32"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["unit", "terms", "order"]
    assert main(["fingerprint", "--unit", "V100_F16_F32", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert line.split()[0] == row["unit"] == "V100_F16_F32"
    assert line.split()[1] == str(row["terms"]) == "4"
    assert line.split()[-1] == ("yes" if row["monotone"] else "no") == "no"


def test_an_unknown_unit_is_one_line(capsys):
    assert main(["fingerprint", "--unit", "V100_F16_F3"]) == 2
    assert "V100_F16_F32" in capsys.readouterr().err


@pytest.mark.parametrize("kind", KINDS)
def test_rows_and_lines_name_the_same_things(kind, capsys):
    assert main(["list", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert main(["list", kind, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) > 4
    first_words = {word for line in lines for word in line.split()[:2]}
    assert {row["name"] for row in rows} <= first_words
    assert len({tuple(row) for row in rows}) <= 3  # formats of numbers, of scales, of blocks


def test_a_seed_is_a_whole_number_of_64_bits():
    assert Seed().convert("18446744073709551615", None, None) == 2**64 - 1
    for text in ("-1", "18446744073709551616", "1.5", ""):
        with pytest.raises(click.UsageError, match="is not a seed"):
            Seed().convert(text, None, None)


def test_formats_are_read_by_name_and_scales_are_refused():
    assert [f.name for f in read_formats("binary16, bfloat16")] == ["binary16", "bfloat16"]
    with pytest.raises(ValueError, match="holds scales of blocks"):
        read_formats("e8m0")


def test_the_users_errors_become_one_line_and_ours_do_not():
    with pytest.raises(click.UsageError, match="n=3"), bad_input():
        raise ValueError("n=3")
    with pytest.raises(KeyError), bad_input():
        raise KeyError("ours")


def test_rows_are_a_json_list_of_lines(capsys):
    echo_json([{"a": 1, "b": math.inf}, {"a": None}])
    out = capsys.readouterr().out
    assert json.loads(out) == [{"a": 1, "b": math.inf}, {"a": None}]
    assert out.count("\n") == 4
    echo_json([])
    assert json.loads(capsys.readouterr().out) == []


def test_completion_offers_what_begins_as_typed():
    assert completing(lambda: ["ab", "ac", "b"])(None, None, "a") == ["ab", "ac"]


@pytest.fixture
def asked(monkeypatch):
    """The arguments of run_series."""
    calls = []

    def run_series(experiments, out, **rest):
        calls.append(([e.name for e in experiments], str(out), rest))
        return 0

    monkeypatch.setattr(series, "run_series", run_series)
    return calls


def test_the_default_report_and_all_of_it(asked):
    assert main(["report", "--quick", "--seed", "5", "--out", "o", "--jobs", "3"]) == 0
    assert main(["report", "--all"]) == 0
    (default, out, rest), (every, _, plain) = asked
    assert default == [e.name for e in catalogue().values() if e.default]
    assert every == list(catalogue())
    assert (out, rest) == ("o", {"quick": True, "seed": 5, "jobs": 3})
    assert plain == {"quick": False, "seed": 0, "jobs": 1}


def test_a_run_of_named_experiments_takes_its_options(asked):
    assert main(["run", "swamping", "--quick", "--seed", "5", "--out", "o", "--jobs", "3"]) == 0
    assert asked == [(["swamping"], "o", {"quick": True, "seed": 5, "jobs": 3})]


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
