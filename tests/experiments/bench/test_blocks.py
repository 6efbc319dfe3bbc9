"""Timed quantisations into blocks: which there are, and what each does (golden, differential)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import fpsim as fp
from ipu.experiments.bench.blocks import NAMES, cases
from ipu.experiments.bench.data import DATA, make
from ipu.experiments.bench.timing import Size

SIZE = Size(128 * 1024, 3)


@pytest.mark.parametrize("quick", [True, False])
def test_every_block_is_timed_on_all_data_with_both_roundings_and_flags(quick):
    names, data = (["mxfp8", "nvfp4"], DATA[:1]) if quick else (NAMES, DATA)
    rows = Counter((c.topic, c.format, c.data, c.rounding, c.flags) for c in cases(SIZE, quick))
    assert rows == Counter(
        (topic, name, kind, rounding, flags)
        for name in names for kind in data for rounding in ("RNE", "SR")
        for topic, flags in (("blocks", False), ("blocks", True), ("blocks, each", True))
    )


def test_a_case_quantises_its_data():
    for case in cases(SIZE, quick=True):
        assert (case.n, case.repeats) == (SIZE.n, SIZE.repeats)
        assert case.bits == (8 if case.rounding == "SR" else None)
        if case.rounding == "RNE":
            expected = fp.quantize(make(case.data, SIZE.n).reshape(-1, 1024), case.format)
            result = case.prepare()()
            np.testing.assert_array_equal(result.values, expected.values)
            assert (result.flags is None) != case.flags
            assert (result.element_flags is None) == (case.topic == "blocks")


def test_a_small_array_has_a_row():
    assert {case.n for case in cases(Size(5, 1), quick=True)} == {1024}
