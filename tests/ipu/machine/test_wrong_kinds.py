"""A device and its verbs, with one argument of a wrong kind after the other (law)."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.machine.device import Device
from tests.wrong_kinds import WRONG, arguments_of, defects

DEVICE = Device()
MATRIX = DEVICE.from_host([[1.0, 2.0], [3.0, 4.0]], BINARY16)
IMAGES = DEVICE.from_host(np.ones((1, 4, 4, 2)), BINARY16)
KERNELS = DEVICE.from_host(np.ones((3, 3, 2, 2)), BINARY16)

VALUES: dict[str, Any] = {
    "x": MATRIX, "y": MATRIX, "a": MATRIX, "b": MATRIX, "fmt": BINARY16, "dtype": "int8",
    "axes": (0,), "axis": 0, "shape": (2,), "keep": 0.5, "values": [1.0],
    "where": np.ones((2, 2), bool), "first": 0, "tensor": "t",
}

#: Verbs that layers and front ends call with what they have made themselves.
INSIDE = {
    "account_blocks", "counting_apart", "obey", "raise_flags", "rounded", "exact", "partials_for",
    "select_positive", "conv2d", "check_blocks", "conv2d_input_gradient",
    "conv2d_weight_gradient", "naming", "rounding",
    "shard",
}


def _verbs() -> list[str]:
    names = [n for n in dir(Device) if not n.startswith("_") and n not in INSIDE]
    return [n for n in names if inspect.isfunction(inspect.getattr_static(Device, n))]


def test_a_device():
    wrong = {name: value for name, value in WRONG.items() if name != "huge"}
    assert list(defects(Device, arguments_of(Device), wrong)) == []


@pytest.mark.parametrize("name", _verbs())
def test_verbs(name):
    verb = getattr(Device(), name)
    parameters = inspect.signature(verb).parameters
    extra = {"scale": 2.0} if name in ("unscale", "reduce_sum", "reduce_squares") else {}
    valid = arguments_of(verb, **{k: v for k, v in (VALUES | extra).items() if k in parameters})
    missing = [n for n, p in parameters.items() if p.default is p.empty and n not in valid]
    assert not missing, "a new verb: give its arguments a value in VALUES"
    assert list(defects(verb, valid)) == []


def test_formats_may_be_named():
    device = Device()
    assert device.from_host([0.1], "fp16").format == BINARY16  # type: ignore[arg-type]
    assert device.cast(MATRIX, "binary32").format == BINARY32  # type: ignore[arg-type]
    assert device.context("fp16") is device.context(BINARY16)  # type: ignore[arg-type]
