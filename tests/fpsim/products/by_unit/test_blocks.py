"""Blocks of terms, columns and rows change memory and no bit (law)."""

from __future__ import annotations

import tracemalloc

import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.products.by_unit import blocks, panels, tiles
from fpsim.records.units import find_unit
from tests.fpsim.in_partials import matmul
from tests.fpsim.products.by_unit.halves import half_matrix, result_of
from tests.tiers import pick

#: Units of the tests, one of each engine.
ENGINES = ["AMP_F16_F32", "AMP_F16_F16", "AMP_F32_F32", "AMP_F16_F16.exact", "V100_F16_F32"]


@pytest.mark.parametrize("unit", pick(ENGINES[:3], ENGINES, ENGINES))
def test_blocks_and_threads_do_not_show(unit, fast_only, monkeypatch):
    inputs = fp.Context(find_unit(unit).inputs[0])
    a, b = (inputs.array(half_matrix(s, i).values) for i, s in enumerate(((37, 700), (700, 50))))
    rounding = fp.SR(9) if find_unit(unit).partials == fp.BINARY16 else fp.RNE
    complete = result_of(a, b, unit, rounding=rounding)
    monkeypatch.setattr(tiles, "_SMALL", 0)
    monkeypatch.setattr(panels, "_SMALLEST", 1)
    for module in (panels, blocks):
        monkeypatch.setattr(module, "_FEW", 1)
    before = fp.get_threads()
    try:
        for threads, size in ((1, 1 << 16), (2, 16 << 20), (3, 1 << 15)):
            fp.set_threads(threads)
            monkeypatch.setattr(blocks, "BYTES", size)
            monkeypatch.setattr(panels, "COLUMN_BYTES", size // 16)
            assert result_of(a, b, unit, rounding=rounding) == complete
    finally:
        fp.set_threads(before)


def test_the_workspace_is_bounded():
    """Whole tables would take 32 MB and 100 MB, and grow with K."""
    a, b = half_matrix((16, 1 << 17), 0), half_matrix((1 << 17, 64), 1)
    context = fp.Context(fp.BINARY32)
    tracemalloc.start()
    try:
        matmul(a, b, "AMP_F16_F32", context=context)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_terms_are_halved_until_their_tables_fit_and_no_further(fast_only, monkeypatch):
    """Every further part would cost a pass over the partial sums."""
    split, lengths, limits = blocks._blocks, [], set()

    def noted(settings, task, rows):
        limits.add(min(
            blocks.BYTES // (task.right.bytes * blocks.COLUMNS),
            blocks.BYTES // task.left.bytes // 2,
        ))
        for terms, pieces in split(settings, task, rows):
            lengths.append(len(terms.rows))
            yield terms, pieces

    monkeypatch.setattr(blocks, "_blocks", noted)
    monkeypatch.setattr(blocks, "BYTES", 1 << 20)
    terms = 1 << 14
    matmul(half_matrix((16, terms), 0), half_matrix((terms, 64), 1), "AMP_F16_F32")
    (limit,) = limits
    assert sum(lengths) == terms
    assert limit // 2 < max(lengths) <= limit < terms
