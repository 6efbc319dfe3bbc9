"""Rows of the ledger: bytes and constants by hand (golden)."""

from __future__ import annotations

import pytest

from fpsim import BINARY16, BINARY32
from ipu.machine import Device
from tests.tiers import pick


def product(k_split=1):
    device = Device()
    x = device.from_host([[1.0] * 64] * 4, BINARY16)
    device.matmul(x, x.T, k_split=k_split)
    return device.ledger.last


def test_bytes_count_each_array_once_in_its_own_format():
    row = product()
    assert (row.operand_bytes, row.result_bytes, row.partial_bytes) == (1024, 32, 64)
    assert row.shape == "4×64 · 64×4 → 4×4"


def test_a_split_k_has_partials_of_every_range_and_says_what_the_exchange_rests_on():
    row = product(k_split=2)
    assert row.partial_bytes == 2 * product().partial_bytes
    names = [name for name, _ in row.facts]
    assert "mk2, bytes of exchange per cycle and tile" in names
    assert "mk2, bytes of exchange per cycle and tile" not in [n for n, _ in product().facts]


def test_the_first_constant_of_a_row_is_the_rate():
    row = product()
    assert row.facts[0][0] == f"{row.instruction}, multiply-adds per cycle"
    assert row.evidence == "DOCUMENTED"


def cycles(n, partials, target="mk2"):
    device = Device(target)
    x = device.zeros((n, n), BINARY16)
    device.matmul(x, x, partials=partials)
    return device.ledger.last.cycles, device.ledger.last.instruction


@pytest.mark.parametrize("n", pick([16, 64, 256], *[[16, 64, 256, 1024]] * 2))
def test_half_partials_cost_no_more_than_single_ones(n):
    assert cycles(n, BINARY16)[0] <= cycles(n, BINARY32)[0]


#: The second product has billions of terms, all of which are computed.
BY_SIZE = [(256, 16 * (32 + 4 * 6), "f16v4hihoamp"), (2048, None, "f16v4hihov4amp")]


@pytest.mark.parametrize(("n", "count", "instruction"), pick(BY_SIZE[:1], BY_SIZE, BY_SIZE))
def test_weights_for_sixteen_columns_pay_where_each_tile_has_many_rows(n, count, instruction):
    assert cycles(n, BINARY16)[1] == instruction
    assert count in (None, cycles(n, BINARY16)[0])
