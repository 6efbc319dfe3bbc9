"""The page of bits beside the library, in a real browser (oracle: the library)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpsim as fp
from fpsim.inspect.probe import probability_up, real
from fpsim.records.formats import CATALOGUE
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
    context = fp.Context(fmt, rounding=mode)
    if text.lstrip("-") in ("inf", "nan"):
        return int(context.array(np.float64(text)).codes())
    exact = real(text)
    told = str(exact) if exact or not text.startswith("-") else "-0"
    return int(context.decimal(told).codes())


def test_every_mode_in_every_format_is_the_librarys(tmp_path: Path) -> None:
    script = f"""async () => FORMATS.map((f) => {json.dumps(MODES)}.map((mode) =>
      {json.dumps(NUMBERS)}.map((text) => String(encode(readNumber(text), f, mode)))))"""
    told = ask(page(tmp_path), tmp_path, f"({script})")
    formats = [f for f in CATALOGUE.values() if isinstance(f, fp.Format) and f.name != "binary64"]
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


def test_typing_changes_the_page_and_wrong_input_says_what_to_give(tmp_path: Path) -> None:
    script = """async () => { const told = {};
      const field = document.getElementById("bits-number");
      for (const text of ["-2/3", "what", "1/0", ""]) {
        field.value = text; field.dispatchEvent(new Event("input"));
        told[text] = [document.getElementById("bits-error").textContent,
          document.getElementById("bits-modes").textContent]; }
      return told; }"""
    told: dict[str, Any] = ask(page(tmp_path), tmp_path, f"({script})")
    assert told["-2/3"][0] == ""
    assert "0xb955" in told["-2/3"][1]
    assert all(told[text][0].startswith("Give a number") for text in ("what", "1/0", ""))
