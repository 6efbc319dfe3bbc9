"""Tables of rounding and arithmetic: every format and mode; what is written (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim.elementwise.apply import apply
from fpsim.records.formats import BINARY16
from fpsim.records.rounding import MODES, RNE
from fpsim.records.settings import Settings
from ipu.experiments.bench import arith
from ipu.experiments.bench import round as rounding
from ipu.experiments.bench.data import make
from ipu.experiments.bench.timing import Size

TINY = Size(n=300, repeats=1)


def described(cases):
    return {(c.topic, c.format, c.rounding, c.bits, c.flags, c.data, c.peer) for c in cases}


def test_the_table_has_every_format_mode_and_kind_of_data():
    mine = {c for c in described(rounding.cases(TINY, quick=False)) if c[-1] is None}
    assert len({c[1] for c in mine if c[0] == "round"}) == 13
    for bits in (4, 13, 32):
        for flags in (False, True):
            for data in ("normal", "mixed"):
                assert ("round", "binary16", "SR", bits, flags, data, None) in mine
    assert ("round", "e4m3fn", "RTO", None, True, "mixed", None) in mine
    assert ("round packed", "bfloat16", "RNE", None, False, "mixed", None) in mine
    assert ("round float64", "binary32", "RTP", None, False, "mixed", None) in mine
    theirs = described(arith.cases(TINY, quick=False))
    assert ("arith fma", "binary32", "SR", 27, True, "normal", None) in theirs
    assert len({c[1] for c in theirs if c[0] == "arith divide"}) == 14
    assert {c[2] for c in theirs if c[:2] == ("arith multiply", "binary16")} == {*MODES, "SR"}
    assert {c[2] for c in theirs if c[:2] == ("arith divide", "binary16")} == {"RNE", "RTP", "SR"}
    assert any(c[-1] and c[-1].startswith("numpy ") for c in theirs)


@pytest.mark.parametrize("flags", [False, True])
def test_what_is_timed_writes_the_result(flags):
    x, out = make("mixed", 300), np.empty(300, np.float32)
    rounding._call(BINARY16, RNE, flags, x, out)()
    wanted, _ = apply("convert", (x,), Settings(BINARY16))
    np.testing.assert_array_equal(out, wanted)
