"""The wire record (exhaustive: every damaged bit is noticed; law: what goes in comes out)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu.members.pieces import BYTES, HEADER, Label, PieceError, pack, unpack

LABEL = Label("binary16", 3, 2, 9, 1, 5)
PAYLOAD = bytes(range(6))

numbers = st.integers(0, 2**64 - 1)


@given(numbers, numbers, numbers, numbers, st.binary(max_size=50))
def test_what_goes_in_comes_out(step, collective, chunk, hop, payload):
    label = Label(BYTES, len(payload), step, collective, chunk, hop)
    assert bytes(unpack(pack(label, payload), label, 1)) == payload


def test_the_record_is_little_endian_and_has_its_documented_places():
    message = pack(LABEL, PAYLOAD)
    assert message[:4] == b"FPS1"
    assert message[4:28] == b"binary16" + bytes(16)
    fields = [int.from_bytes(message[at : at + 8], "little") for at in range(28, 68, 8)]
    assert fields == [3, 2, 9, 1, 5]
    assert len(message) == HEADER + 6
    assert message[HEADER:] == PAYLOAD


def test_every_damaged_bit_is_noticed():
    message = pack(LABEL, PAYLOAD)
    for bit in range(8 * len(message)):
        damaged = bytearray(message)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PieceError, match=r"no piece of this protocol|it is damaged"):
            unpack(bytes(damaged), LABEL, 2)


@pytest.mark.parametrize("length", [0, 3, HEADER - 1, HEADER, HEADER + 5])
def test_a_piece_that_is_cut_short_is_noticed(length):
    with pytest.raises(PieceError):
        unpack(pack(LABEL, PAYLOAD)[:length], LABEL, 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("format", "binary32"),
        ("elements", 4),
        ("step", 3),
        ("collective", 8),
        ("chunk", 0),
        ("hop", 4),
    ],
)
def test_another_piece_than_the_expected_one_is_told_by_both_values(field, value):
    expected = LABEL._replace(**{field: value})
    with pytest.raises(PieceError, match=f"^{field} is .*, expected {value}$"):
        unpack(pack(LABEL, PAYLOAD), expected, 2)


def test_a_payload_of_another_length_than_its_elements_is_refused():
    with pytest.raises(PieceError, match="5 bytes, expected 6: 3 elements of binary16"):
        unpack(pack(LABEL, PAYLOAD[:5]), LABEL, 2)


def test_a_format_name_that_the_record_has_no_room_for_is_refused():
    with pytest.raises(ValueError, match="longer than the 24 bytes"):
        pack(LABEL._replace(format="x" * 25), b"")
