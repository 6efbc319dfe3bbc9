"""fpsim show, from the command line."""

from __future__ import annotations

import pytest

from ipu.experiments.cli import main


def shown(capsys, *arguments: str) -> str:
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def test_show_takes_a_code_apart(capsys):
    out = shown(capsys, "0x3c00")
    for part in ("1.0  (normal)", "0 01111 0000000000", "0.99951171875 and 1.0009765625"):
        assert part in out
    assert "subnormal" in shown(capsys, "0x0001", "--format", "e4m3fn")
    assert "quiet NaN" in shown(capsys, "0b0111111000000000")


def test_show_says_where_a_number_lies_and_its_chance_to_go_up(capsys):
    out = shown(capsys, "0.1", "--format", "binary16,bfloat16")
    assert out.count("0.1 in ") == 2
    assert "0x2e66" in out
    assert "0.0999755859375 and 0.10003662109375" in out
    assert "SR() goes up   with probability 0.4" in out
    assert "with probability 0.5" in shown(capsys, "2049", "--rounding", "sr_equal")
    assert "-1.0  (normal)" in shown(capsys, "-1")
    assert "inf  (infinity)" in shown(capsys, "1e6")
    assert "nan  (quiet NaN)" in shown(capsys, "nan")


def test_binary64_is_shown_without_stochastic_rounding(capsys):
    out = shown(capsys, "0.1", "--format", "binary64")
    assert "0x3fb999999999999a" in out
    assert "RNE goes up    with probability 1" in out
    assert "SR()" not in out


def test_a_value_of_the_format_has_no_error(capsys):
    for number in ("0.75", "0x1.8p-1", "-1", "65504"):
        assert "  error          none\n" in shown(capsys, number)
    assert "below 1e-323 in size, " in shown(capsys, f"1.{'0' * 400}1")


@pytest.mark.parametrize("rounding", ["RNE", "RTZ"])
def test_numbers_beyond_every_format_are_shown_at_once(rounding, capsys):
    """Their digits are not written; the error of a largest value may be beyond binary64."""
    for sign in ("", "-"):
        for number in ("1e999999999", "1e5000", "1e309", "0x1p99999999", "9" * 5000):
            out = shown(capsys, sign + number, "--rounding", rounding)
            assert ("inf  (infinity)" if rounding == "RNE" else "65504.0  (normal)") in out
        for number in ("1e-999999999", "1e-5000"):
            assert "0.0  (zero)" in shown(capsys, sign + number, "--rounding", rounding)
        assert f"{sign}0.0  (zero)" in shown(capsys, f"{sign}0e999999999", "--rounding", rounding)
    assert "beyond binary64" in shown(capsys, "1e5000", "--rounding", "RTZ")


@pytest.mark.parametrize(
    "line", ["abc", "0x12345", "0xzz", "1 --format binary61", "1 --rounding RNX", ""]
)
def test_show_refuses_bad_input_in_one_line(line, capsys):
    assert main(["show", *line.split()]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


@pytest.mark.parametrize("text", ["0x", "abc", "0b2", "1/0", "--format"])
def test_what_is_no_number_is_told_what_is_allowed(text, capsys):
    assert main(["show", "--", text]) == 2
    error = capsys.readouterr().err
    assert f"number={text!r} is no " in error
    assert "0.1, 1/3, 0x1.8p-1, inf, nan" in error
    assert "0x3c00" in error
