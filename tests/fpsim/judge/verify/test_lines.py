"""Lines of vectors: fields of any width, and streams that are damaged or swollen (corners)."""

from __future__ import annotations

import gzip
import io
import tracemalloc

import numpy as np
import pytest

from fpsim.judge.verify.lines import blocks, parse, text_lines
from fpsim.state import files

LINE = b"3C00 3C00 4000 00\n"


def test_parse_is_int_of_each_field():
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 1 << 64, (3, 50), np.uint64)
    text = "".join(f"{a:016x} {b:016X} {c:016X}\n" for a, b, c in codes.T)
    columns, bad = parse(text.encode(), (16, 16, 16))
    assert bad == -1
    np.testing.assert_array_equal(columns, codes)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("block", [1, 17, 50, 1 << 22])
def test_blocks_are_whole_lines_and_lose_nothing(pack, block, monkeypatch):
    monkeypatch.setattr("fpsim.judge.verify.lines.BLOCK", max(block, len(LINE)))
    text = LINE * 20 + b"no end"
    parts = list(blocks(io.BytesIO(pack(text)), "these"))
    assert all(part.endswith(b"\n") for part in parts)
    assert b"".join(parts) == text + b"\n"


def test_a_stream_that_cannot_be_peeked_is_read_too():
    raw = io.BytesIO(gzip.compress(LINE))
    assert not hasattr(raw, "peek")
    assert list(blocks(raw, "these")) == [LINE]
    assert list(blocks(io.BytesIO(b""), "these")) == []


@pytest.mark.parametrize(
    "content",
    [b"\x1f\x8bno", gzip.compress(LINE)[:-9], gzip.compress(LINE)[:12] + b"\xff" * 20],
    ids=["a head alone", "cut short", "damaged"],
)
def test_damaged_gzip_is_refused(content):
    with pytest.raises(ValueError, match="these cannot be read"):
        list(blocks(io.BytesIO(content), "these"))


def test_text_is_ascii():
    assert list(text_lines(io.BytesIO(b"a\r\n\nb"), "these")) == ["a", "", "b"]
    with pytest.raises(ValueError, match="these is no text of vectors"):
        list(text_lines(io.BytesIO(b"\xff\n"), "these"))


@pytest.mark.parametrize("content", [b"\n", LINE])
def test_gzip_that_unpacks_to_much_more_than_its_size_is_refused(content, monkeypatch):
    """64 MiB of lines in 64 KiB, where 8 MiB and 64 times the size are allowed."""
    monkeypatch.setattr(files, "_FREE", 1 << 23)
    packed = gzip.compress(content * ((1 << 26) // len(content)))
    assert len(packed) < 1 << 19
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"these unpacks to more than \d+ bytes from \d+"):
            for _ in blocks(io.BytesIO(packed), "these"):
                pass
        assert tracemalloc.get_traced_memory()[1] < 1 << 25
    finally:
        tracemalloc.stop()


def test_vectors_that_shrink_as_text_does_are_read():
    rng = np.random.default_rng(1)
    lines = b"".join(b"%04X %04X 0000 00\n" % tuple(row) for row in rng.integers(0, 65536, (99, 2)))
    assert b"".join(blocks(io.BytesIO(gzip.compress(lines * 9)), "these")) == lines * 9
