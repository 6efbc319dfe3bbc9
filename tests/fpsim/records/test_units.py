"""Records of matrix units: what is refused, and how a unit is known by name (corners)."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import replace

import pytest

import fpsim as fp
from fpsim.records.evidence import Evidence
from fpsim.records.units import UNITS, MatrixUnit, find_unit, register, with_partials
from tests.wheels import unpacked

PLAIN = MatrixUnit("OURS_F16_F32", "a test", (fp.BINARY16,), fp.BINARY32, terms=4, window=24)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"terms": 2.0}, TypeError, "terms=2.0"),
        ({"terms": True}, TypeError, "terms=True"),
        ({"calls": "1"}, TypeError, "calls='1'"),
        ({"terms": 257}, ValueError, "at most 256"),
        ({"terms": 0}, ValueError, "at least one each"),
        ({"calls": 0}, ValueError, "at least one each"),
        ({"taps": 3}, ValueError, "do not divide the 4 products"),
        ({"calls": None, "join": fp.BINARY32}, ValueError, "no join"),
        ({"cut": "round"}, ValueError, "truncate, sticky"),
        ({"order": "descending"}, ValueError, "ascending, pairs"),
        ({"window": 0}, ValueError, "1 to 48"),
        ({"window": 49}, ValueError, "1 to 48"),
        ({"rounding": fp.RNA}, ValueError, "RNE or RTZ"),
        ({"partials": fp.BINARY64}, ValueError, "binary32 holds"),
        ({"inputs": (fp.BINARY16, fp.BINARY64)}, ValueError, "binary32 holds"),
        ({"accumulator": fp.Format.custom(8, 25)}, ValueError, "binary32 holds"),
        ({"join": fp.BINARY64}, ValueError, "binary32 holds"),
        ({"inputs": ()}, ValueError, "formats that it takes"),
        ({"order": "pairs", "terms": 2}, ValueError, "multiple of 4"),
        ({"order": "pairs", "terms": 3, "calls": 2}, ValueError, "multiple of 4"),
        ({"order": "pairs", "terms": 2, "calls": None}, ValueError, "multiple of 4"),
        ({"accumulator": fp.E4M3FN}, ValueError, "no infinity for what overflows"),
        ({"join": fp.F143}, ValueError, "join f143, which has no infinity"),
        ({"partials": fp.F143, "product_rounded": True}, ValueError, "rounded products f143"),
        ({"partials": fp.E2M1FN}, ValueError, "no NaN"),
    ],
)
def test_a_record_that_no_engine_can_run_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        replace(PLAIN, **change)


def test_the_ends_of_each_range_are_allowed():
    assert replace(PLAIN, terms=256, window=48).channels == 256
    assert replace(PLAIN, terms=1, window=1, calls=3).channels == 3
    complete = replace(PLAIN, calls=None)
    assert (complete.chain, complete.channels) == (1, 4)


def test_what_has_a_ruling_is_allowed():
    assert replace(PLAIN, order="pairs").channels == 4
    assert replace(PLAIN, order="pairs", terms=2, calls=2).channels == 4
    assert replace(PLAIN, order="pairs", terms=8, calls=None).channels == 8
    assert replace(PLAIN, partials=fp.F143).stores
    products = replace(PLAIN, partials=fp.BINARY16, product_rounded=True)
    assert (products.products, PLAIN.products) == (fp.BINARY16, None)
    assert replace(products, window=None).products == fp.BINARY32


@pytest.mark.parametrize(
    ("partials", "accumulator", "stores"),
    [
        (fp.BINARY32, fp.BINARY16, False), (fp.BINARY16, fp.BINARY16, False),
        (fp.BINARY16, fp.BINARY32, True), (fp.F152, fp.E5M2, True),
        # as many digits or more, but not the range
        (fp.BINARY16, fp.BFLOAT16, True), (fp.BINARY16, fp.TF32, True),
        (fp.BINARY16, fp.Format.custom(5, 4, bias=25), True),
    ],
)
def test_sums_that_the_partials_do_not_hold_are_stored(partials, accumulator, stores):
    assert replace(PLAIN, partials=partials, accumulator=accumulator).stores is stores


@pytest.mark.parametrize("name", ["V100_F16_F32", "B200_MMA_E4M3_F16", "A100_TF32_F32"])
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda unit: pickle.loads(pickle.dumps(unit))]
)
def test_a_unit_can_be_copied_and_pickled(copied, name):
    for unit in (find_unit(name), replace(find_unit(name), name="MINE", window=7)):
        other = copied(unit)
        assert (other, hash(other)) == (unit, hash(unit))
        assert dict(other.evidence) == dict(unit.evidence)
        assert other.facts == unit.facts
        with pytest.raises(TypeError, match="item assignment"):
            other.evidence["window"] = None


def test_what_a_pass_emits_is_the_join_where_there_is_one():
    assert PLAIN.emitted == fp.BINARY32
    assert replace(PLAIN, join=fp.BINARY16).emitted == fp.BINARY16


def test_a_name_is_found_in_any_case_and_with_the_default_preset():
    unit = find_unit("A100_F16_F32")
    assert find_unit("a100_f16_f32") is unit
    assert find_unit("A100_F16_F32.window") is unit
    assert find_unit(unit) is unit
    assert (unit.family, str(unit)) == ("A100_F16", "A100_F16_F32")


def test_what_names_no_unit_is_told_what_to_do():
    with pytest.raises(TypeError, match="use a name, see: fpsim list units"):
        find_unit(16)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Did you mean 'H100_F16_F32'"):
        find_unit("H10_F16_F32")
    with pytest.raises(ValueError, match=r"'Q' is not known\. See: fpsim list units"):
        find_unit("Q")


def test_a_name_is_registered_once():
    register([UNITS["A100_F16_F32"]])
    with pytest.raises(ValueError, match="unit A100_F16_F32 is registered already"):
        register([replace(UNITS["A100_F16_F32"], terms=4)])
    assert UNITS["A100_F16_F32"].terms == 8


def test_the_family_member_with_other_partials_is_found():
    unit = find_unit("V100_F16_F32")
    assert with_partials(unit, None) is unit
    assert with_partials(unit, fp.BINARY32) is unit
    assert with_partials(unit, fp.BINARY16).name == "V100_F16_F16"
    with pytest.raises(ValueError, match=r"partials=bfloat16 .* use binary32 or binary16"):
        with_partials(unit, fp.BFLOAT16)


def test_facts_are_the_constants_with_their_evidence():
    evident = replace(PLAIN, evidence={"window": (Evidence.ASSUMED, "a test")})
    assert str(evident.facts["window"]) == "24 (ASSUMED: a test)"
    assert evident.weakest_evidence is Evidence.ASSUMED
    with pytest.raises(TypeError):
        evident.evidence["terms"] = (Evidence.ASSUMED, "a test")  # type: ignore[index]


@pytest.mark.parametrize("module", ["fpsim.records.units", "fpsim.records.formats", "fpsim"])
def test_tensor_cores_are_known_after_any_import(module):
    code = (
        f"import {module}, sys; print('V100_F16_F32' in sys.modules['fpsim.records.units'].UNITS)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=True
    )
    assert answer.stdout == "True\n"


def test_an_unknown_unit_is_told_so_with_what_would_make_it_known():
    with pytest.raises(ValueError, match=r"unit='NOBODY_F16_F32' is not known\.") as told:
        find_unit("NOBODY_F16_F32")
    assert "units of another package are known once that package is imported." in str(told.value)


def test_a_unit_of_an_installed_package_is_known_without_its_import(wheel, tmp_path):
    code = (
        "import sys; from fpsim.records.units import find_unit\n"
        "print('ipu' in sys.modules, find_unit('AMP_F16_F32'), 'ipu' in sys.modules)"
    )
    site = unpacked([wheel], tmp_path)
    answer = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, check=True,
        cwd=site, env=os.environ | {"PYTHONPATH": str(site)},
    )
    assert answer.stdout == "False AMP_F16_F32 True\n"
