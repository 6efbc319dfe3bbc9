"""States are plain data, and come back from records with every field (law)."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from fpsim import BINARY16, F143
from ipu.learn.checkpoint.record import from_record, to_record
from ipu.learn.checkpoint.state import Kept, format_named
from tests.ipu.learn.checkpoint.states import EMPTY


def test_a_state_comes_back_from_its_record_as_json():
    state = replace(
        EMPTY, built={"policy": "p=f32"}, loss_scale={"factor": 2.0, "histogram": [0.0, 1.0]},
        flags={"binary16": 5}, operation=7, progress=None,
    )
    record, arrays = to_record(state)
    assert from_record(json.loads(json.dumps(record)), arrays) == state
    assert arrays == {}


def test_values_go_to_the_arrays_as_codes():
    state = replace(EMPTY, parameters={"w": Kept("binary16", np.float32([1.0, -0.0]))})
    record, arrays = to_record(state)
    assert record["parameters"] == {"w": {"key": "parameters/w", "format": "binary16"}}
    assert arrays["parameters/w"].tolist() == [0x3C00, 0x8000]


def test_the_field_that_is_wrong_is_named():
    record, arrays = to_record(EMPTY)
    with pytest.raises(ValueError, match="flags is not what a state has there"):
        from_record(record | {"flags": {"binary16": -1}}, arrays)


@pytest.mark.parametrize("fmt", [BINARY16, F143], ids=str)
def test_values_know_the_format_that_they_were_kept_in(fmt):
    assert Kept(fmt.name, np.zeros(1)).record == format_named(fmt.name) == fmt
