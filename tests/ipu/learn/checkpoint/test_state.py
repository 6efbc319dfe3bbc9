"""States are plain data: values with the name of their format (law)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, F143
from ipu.learn.checkpoint.state import Kept, format_named


@pytest.mark.parametrize("fmt", [BINARY16, F143], ids=str)
def test_values_know_the_format_that_they_were_kept_in(fmt):
    assert Kept(fmt.name, np.zeros(1)).record == format_named(fmt.name) == fmt
