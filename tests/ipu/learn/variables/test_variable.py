"""Variables keep their shape and format (law)."""

from __future__ import annotations

import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.variables import (
    get_variable,
    variable_scope,
)


def test_assignment_keeps_shape_and_format(variables):
    with variable_scope("a", use_resource=True):
        variable = get_variable("w", [2], BINARY16)
    with pytest.raises(ValueError, match=r"a/w is binary16 of shape \(2,\), got binary32"):
        variable.assign(variables.device.zeros((2,), BINARY32))
