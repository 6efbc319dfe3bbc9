"""The page of bits beside the library, in a real browser (oracle: the library)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

import fpsim as fp
from fpsim.inspect.probe import neighbours, probability_up, real
from fpsim.judge.oracle.rounding import OracleSettings, round_real
from fpsim.records.formats import CATALOGUE
from fpsim.records.rounding import find_rounding
from tests.experiments.browser import ask

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS / "extensions"))

MODES = ("RNE", "RNA", "RNZ", "RTZ", "RTP", "RTN", "RAZ", "RTO")
NUMBERS = (
    "0", "-0", "1", "-1", "0.1", "1/3", "-2/3", "2049", "65519.999", "65520", "131072", "-1e300",
    "448", "456", "464", "465", "480", "240", "57344", "61440", "6", "7", "-28.5", "1e-8", "3e-8",
    "-2.98023223876953125e-8", "0x1.8p-25", "0x1p-149", "0x0.8p-149", "7e-46", "1e-4000", "1e4000",
    "0x1.fffffep127", "0x1.ffffffp127", "inf", "-inf", "nan", "1.0009765625", "1.00048828125",
)


def page(folder: Path) -> Path:
    """The page as it stands in the site, without its frame."""
    from formats_for_scripts import script

    text = (DOCS / "bits.md").read_text(encoding="utf-8")
    parts = "".join(re.findall(r"```\{raw\} html\n(.*?)```", text, re.DOTALL))
    code = (DOCS / "static" / "bits.js").read_text(encoding="utf-8")
    body = re.sub(r"<script src.*?</script>", "", parts)
    path = folder / "bits.html"
    path.write_text(
        f"<!doctype html><body>{body}<script>{script()}</script><script>{code}</script></body>",
        encoding="utf-8",
    )
    return path


def expected(text: str, fmt: fp.Format, mode: str) -> int:
    if fmt is fp.BINARY64:  # which rounds to nearest alone: the oracle in exact fractions
        return oracle_code(text, mode)
    context = fp.Context(fmt, rounding=mode)
    if text.lstrip("-") in ("inf", "nan"):
        return int(context.array(np.float64(text)).codes())
    exact = real(text)
    told = str(exact) if exact or not text.startswith("-") else "-0"
    return int(context.decimal(told).codes())


def oracle_code(text: str, mode: str) -> int:
    if text.lstrip("-") in ("inf", "nan"):
        return int(fp.encode(float(text), fp.BINARY64))
    settings = OracleSettings(rounding=find_rounding(mode))
    return round_real(real(text), fp.BINARY64, settings, int(text.startswith("-")))[0]


def test_every_mode_in_every_format_is_the_librarys(tmp_path: Path) -> None:
    script = f"""async () => FORMATS.map((f) => {json.dumps(MODES)}.map((mode) =>
      {json.dumps(NUMBERS)}.map((text) => String(encode(readNumber(text), f, mode)))))"""
    told = ask(page(tmp_path), tmp_path, f"({script})")
    formats = [f for f in CATALOGUE.values() if isinstance(f, fp.Format)]
    assert len(told) == len(formats)
    wrong = [
        (fmt.name, mode, text, code, expected(text, fmt, mode))
        for fmt, by_mode in zip(formats, told, strict=True)
        for mode, codes in zip(MODES, by_mode, strict=True)
        for text, code in zip(NUMBERS, codes, strict=True)
        if int(code) != expected(text, fmt, mode)
    ]
    assert wrong == []


@pytest.mark.parametrize("bits", [1, 8, 13])
def test_stochastic_rounding_counts_the_random_numbers_that_go_up(bits, tmp_path):
    texts = ["0.1", "1/3", "2049", "1.00048828125", "1e-8", "-65500.5"]
    script = f"""async () => {json.dumps(texts)}.map((text) => String(draws(readNumber(text),
      FORMATS.find((f) => f.name === "binary16"), {bits})))"""
    told = ask(page(tmp_path), tmp_path, f"({script})")
    chances = [probability_up(real(text), fp.BINARY16, fp.SR(bits)) for text in texts]
    assert [int(count) for count in told] == [chance * 2**bits for chance in chances]


@pytest.mark.parametrize("fmt", [fp.E4M3FN, fp.E5M2, fp.F143, fp.BFLOAT16], ids=str)
def test_codes_are_read_as_the_library_reads_them(fmt, tmp_path):
    codes = np.arange(0, fmt.n_codes, max(1, fmt.n_codes >> 10))
    script = f"""async () => {codes.tolist()}.map((code) => {{
      const x = decode(BigInt(code), FORMATS.find((f) => f.name === "{fmt.name}"));
      return x.special ? (x.special === "nan" ? "nan" : x.sign ? "-inf" : "inf")
        : String(Number(x.top) / Number(x.bottom) * (x.sign ? -1 : 1)); }})"""
    told = np.array(ask(page(tmp_path), tmp_path, f"({script})"), np.float64)
    np.testing.assert_array_equal(told, fp.decode(codes, fmt))


@pytest.mark.parametrize("fmt", [fp.BINARY16, fp.E4M3FN, fp.F143, fp.E2M1FN], ids=str)
def test_neighbours_of_every_kind_of_value_are_the_librarys(fmt, tmp_path):
    ends = (fmt.max, fmt.smallest_subnormal, fmt.smallest_normal)
    texts = ["0", "-0", "1", "-1", "1.5", "-2", *(x.hex() for y in ends for x in (y, -y))]
    script = f"""async () => {json.dumps(texts)}.map((text) => {{
      const fmt = FORMATS.find((f) => f.name === "{fmt.name}");
      const code = encode(readNumber(text), fmt, "RTZ");
      return [-1n, 1n].map((way) => {{
        const x = beside(code, way, fmt);
        return x && (x.special ? (x.sign ? "-inf" : "inf")
          : String(Number(x.top) / Number(x.bottom) * (x.sign ? -1 : 1))); }}); }})"""
    told = ask(page(tmp_path), tmp_path, f"({script})")
    assert [tuple(x and float(x) for x in pair) for pair in told] == [
        neighbours(text, fmt) for text in texts
    ]


#: Numbers, formats and random bits as they are typed; what the page says of them.
WRONG = {
    ("what", "", "8"): "Number what cannot be read; give 0.1, 1/3, 1e-5, 0x1.8p-1, inf or nan.",
    ("1/0", "", "8"): "Number 1/0 divides by zero; give inf or nan.",
    ("0,1", "", "8"): "Number 0,1 has a comma; write 0.1.",
    ("0x3c00", "", "8"): '0x3c00 is a code; give it in the field "Code" below, beside its format.',
    ("", "", "8"): "Give a number: 0.1, 1/3, 1e-5, 0x1.8p-1, inf or nan.",
    ("1", "", "33"): "Random bits 33: give a whole number from 1 to 32 in binary16.",
    ("1", "", "1.5"): "Random bits 1.5: give a whole number from 1 to 32 in binary16.",
    ("1", "", ""): "Random bits missing: give a whole number from 1 to 32 in binary16.",
    ("1", "0x10000", "8"): "Code 0x10000 is none of binary16; give 0x0000 to 0xffff, or 0b and "
                           "binary digits.",
    ("1", "zz", "8"): "Code zz is none of binary16; give 0x0000 to 0xffff, or 0b and binary "
                      "digits.",
}
TYPE = """const get = (name) => document.getElementById("bits-" + name);
      const type = (name, text) => {
        get(name).value = text; get(name).dispatchEvent(new Event("input")); };"""


def test_wrong_input_says_what_was_typed_and_what_to_give(tmp_path: Path) -> None:
    script = f"""async () => {{ {TYPE}
      return {json.dumps([list(typed) for typed in WRONG])}.map(([number, code, random]) => {{
        get("random").type = "text";
        type("number", number); type("random", random); if (code) type("code", code);
        return [get("error").textContent + get("format-error").textContent,
          get("modes").textContent]; }}); }}"""
    told = ask(page(tmp_path), tmp_path, f"({script})")
    assert told == [[sentence, ""] for sentence in WRONG.values()]


def test_a_code_that_is_typed_becomes_its_number(tmp_path: Path) -> None:
    script = f"""async () => {{ {TYPE}
      type("code", "0x0001"); const tiny = get("number").value;
      type("format", "e4m3fn"); type("code", "0b01111110"); const most = get("number").value;
      type("code", "0xff"); const none = get("number").value;
      return [tiny, most, none, get("format-error").textContent]; }}"""
    tiny, most, none, error = ask(page(tmp_path), tmp_path, f"({script})")
    assert (real(tiny), real(most), none, error) == (
        real(fp.BINARY16.smallest_subnormal), 448, "nan", "")


def test_typing_changes_the_page(tmp_path: Path) -> None:
    script = f"""async () => {{ {TYPE}
      type("number", "-2/3");
      return [get("error").textContent, get("modes").textContent]; }}"""
    error, modes = ask(page(tmp_path), tmp_path, f"({script})")
    assert error == ""
    assert "0xb955" in modes
