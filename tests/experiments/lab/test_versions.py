"""What a result was made with: versions, commit, processor, units, a digest of the sources."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.experiments.lab import versions
from ipu.experiments.lab.machine import costs_of, units_of
from ipu.experiments.lab.result import Result
from ipu.experiments.lab.store import META, save_data
from ipu.machine import Device

ROOT = Path(__file__).parents[3]


def test_every_package_has_a_version():
    table = versions.versions()
    assert {"Python", "machine", "fpsim", *versions.PACKAGES} == set(table)
    assert re.match(r"\d+\.\d+", table["fpsim"])


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout")
def test_the_commit_is_gits():
    head = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True,
                          text=True, check=True).stdout
    assert head.startswith(versions.commit().removesuffix("+"))


def test_the_processor_has_a_name_and_the_sources_a_digest():
    assert versions.processor()
    assert re.fullmatch(r"[0-9a-f]{64}", versions.sources())


def test_every_unit_that_computed_reaches_the_report(tmp_path):
    device = Device(partials=BINARY16)
    x = device.from_host(np.ones((1, 3, 3, 1)), BINARY16)
    w = device.from_host(np.ones((2, 2, 1, 8)), BINARY16)
    y = device.conv2d(x, w)
    assert "choice of the unit" not in str(units_of(Device()))
    device.conv2d_input_gradient(y, w, x.shape, partials=BINARY32)
    device.conv2d(x, w, unit="VMAC_F16_F16")
    result = Result([{"n": 1}], "", "", units=(*units_of(device), *costs_of(device)))
    save_data(tmp_path, result, {})
    message = {u["name"]: u for u in json.loads((tmp_path / META).read_text())["units"]}
    assert {"SLIC_F16_F16", "AMP_F16_F32", "VMAC_F16_F16"} <= message.keys()
    assert message["SLIC_F16_F16"]["evidence"] == "ASSUMED"
    assert "f16v4hihov4slic" in message["SLIC_F16_F16"]["source"]
    rule = next(u for name, u in message.items() if name.startswith("choice of the unit"))
    assert rule["evidence"] == "ASSUMED"
    assert message["f16v4cmac, multiply-adds per cycle = 4"]["evidence"] == "INFERRED"
