"""Fixtures of the tests of variables."""

from __future__ import annotations

import pytest

from ipu.learn.variables import (
    Variables,
)
from ipu.machine import Device


@pytest.fixture
def variables():
    with Variables(Device()) as store:
        yield store
