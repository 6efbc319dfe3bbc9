"""Options of several commands: seeds, formats, JSON (golden)."""

from __future__ import annotations

import json
import math

import click
import pytest

from ipu.experiments.commands.options import Seed, bad_input, completing, echo_json, read_formats


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
