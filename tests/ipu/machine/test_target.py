"""Targets: published peaks (golden), and which machine has which instruction."""

from __future__ import annotations

import pytest

from fpsim import BFLOAT16, BINARY16, BINARY32, BINARY64, F143
from fpsim.records.units import find_unit
from ipu.machine import BOW, HYPOTHETICAL, MK1, MK2, MK2_FP8, TARGETS, Device


@pytest.mark.source("S4-02")
def test_half_peak_is_four_times_single_peak():
    for target in (MK1, MK2, BOW):
        assert target.peak(BINARY16) == 4 * target.peak(BINARY32)


@pytest.mark.source("Jia et al., arXiv 1912.03413; thecharlieblake.co.uk/ipus")
@pytest.mark.parametrize(
    ("target", "inputs", "teraflops"),
    [(MK1, "f16", 124.5), (MK1, "f32", 31.1), (MK2, "f16", 249.6), (MK2, "f32", 62.4),
     (BOW, "f16", 348.6), (BOW, "f32", 87.1)],
)
def test_published_peaks(target, inputs, teraflops):
    assert target.peak(inputs) == pytest.approx(teraflops * 1e12, rel=1e-3)


@pytest.mark.source("Jia et al., arXiv 1912.03413; facts: ipu-arithmetic §6.1")
@pytest.mark.parametrize(
    ("target", "tiles", "memory", "all_tiles"),
    [(MK1, 1216, 262_144, 304 * 2**20), (MK2, 1472, 638_976, 897 * 2**20),
     (BOW, 1472, 638_976, 897 * 2**20)],
)
def test_tiles_workers_and_memory(target, tiles, memory, all_tiles):
    """256 KiB in each of 1216 tiles are 304 MiB, 624 KiB in each of 1472 are 897 MiB."""
    assert (target.tiles.value, target.workers.value) == (tiles, 6)
    assert target.tile_memory.value == memory
    assert tiles * memory == all_tiles


def test_peaks_by_partials():
    assert MK2.peak(BINARY16, BINARY32) == MK2.peak(BINARY16) / 2
    assert MK1.peak(BINARY16, BINARY32) == MK1.peak(BINARY16)
    per_cycle = MK2_FP8.peak(F143) / MK2_FP8.tiles.value / MK2_FP8.clock.value
    assert per_cycle == 256
    with pytest.raises(ValueError, match="target=mk1 has no unit for f143; it has AMP_F16_F16"):
        MK1.peak(F143)
    with pytest.raises(ValueError, match="no unit for binary32 with binary16 partials"):
        MK1.peak(BINARY32, BINARY16)


#: The instructions of the AMP by target, as the instruction sets list them.
AMP = {
    "mk1": "f16v4hihoamp f16v4sihoamp f16v4sisoamp f32sisoamp",
    "mk2": "f16v4hihoamp f16v4sihoamp f16v4sisoamp f32sisoamp f16v4hihov4amp f32sisov2amp",
}


def test_every_instruction_of_the_amp_is_somewhere():
    names = {t.name: {i.name for i in t.instructions if "amp" in i.name} for t in TARGETS.values()}
    assert names["mk1"] == set(AMP["mk1"].split())
    assert names["mk2"] == names["bow"] == set(AMP["mk2"].split())
    assert names["mk2-fp8"] == names["mk2"] | {"f8v8hihov4amp"}
    assert names["hypothetical"] == names["mk2"] | {"f16v4sisoamp of bfloat16"}


def test_a_unit_that_the_target_lacks_is_refused_with_the_others():
    quarters = find_unit("AMP_F8_F16")
    with pytest.raises(ValueError, match=r"target=mk2 has no unit AMP_F8_F16; use one of "
                       r"AMP_F16_F16.*, or choose target mk2-fp8"):
        MK2.instruction(quarters)
    device = Device()
    x = device.from_host([[1.0]], BINARY16)
    with pytest.raises(ValueError, match=r"no unit V100_F16_F32.*run with fpsim.linalg.matmul"):
        device.matmul(x, x, unit="V100_F16_F32")
    with pytest.raises(ValueError, match="partials=binary16 is not offered by AMP_F32"):
        device.matmul(device.cast(x, BINARY32), device.cast(x, BINARY32), partials=BINARY16)


def test_bfloat16_is_for_the_hypothetical_target():
    with pytest.raises(ValueError, match="target=mk2 computes in binary16, binary32, not in bf"):
        Device().from_host([1.0], BFLOAT16)
    assert Device("hypothetical").from_host([1.0], BFLOAT16).values.tolist() == [1.0]
    assert HYPOTHETICAL.peak(BFLOAT16) == MK2.peak(BINARY16, BINARY32)


def test_unknown_targets_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="target='mk3' is not known; use one of mk1, mk2"):
        Device("mk3")


def test_targets_are_listed_by_their_names():
    names = ["mk1", "mk2", "bow", "mk2-fp8", "hypothetical", "reference"]
    assert [(key, target.name) for key, target in TARGETS.items()] == [(n, n) for n in names]
    assert TARGETS["mk2"] is MK2
    assert [name for name in names if BINARY64 in TARGETS[name].formats] == ["reference"]
