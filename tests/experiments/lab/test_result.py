"""Rows survive the way to the file and back, byte for byte and value for value (law)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ipu.experiments.lab.result import Result, rows_from_csv

words = st.text("abcdefgh _+-", min_size=1).filter(lambda w: w not in ("", "true", "false"))
plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words
rows = st.lists(st.fixed_dictionaries({"a": plain, "b": plain}), min_size=1, max_size=5)


def _is_number(word: object) -> bool:
    try:
        float(str(word))
    except ValueError:
        return False
    return True


@given(rows)
def test_rows_read_back_are_the_rows_written(table):
    table = [
        {k: None if isinstance(v, str) and _is_number(v) else v for k, v in row.items()}
        for row in table
    ]
    present = [{k: v for k, v in row.items() if v is not None} for row in table]
    assert rows_from_csv(Result(table, "", "").to_csv()) == present


def test_floats_keep_every_bit_and_numpy_scalars_are_numbers():
    values = [5e-324, 0.1, -0.0, math.inf, np.float32(0.1), np.int64(7), np.bool_(True)]
    text = Result([{"x": v} for v in values], "", "").to_csv()
    back = [row["x"] for row in rows_from_csv(text)]
    assert back == [5e-324, 0.1, -0.0, math.inf, float(np.float32(0.1)), 7, True]
    assert math.copysign(1, back[2]) == -1


@pytest.mark.parametrize("word", ["12", "1e3", "nan", "", "true"])
def test_a_word_that_would_be_read_as_something_else_is_refused(word):
    with pytest.raises(TypeError, match="cannot be a cell"):
        Result([{"x": word}], "", "").to_csv()


def test_columns_may_differ_between_parts():
    result = Result([{"part": "a", "x": 1}, {"part": "b", "y": 2.5}], "", "")
    assert result.to_csv() == "part,x,y\na,1,\nb,,2.5\n"
    assert result.column("y", part="b").tolist() == [2.5]
