"""How many Python calls lie between an operation of torch and the kernel that computes it."""

from __future__ import annotations

import pytest

from tests.calls import codes_called
from tests.ipu.frontends.torch.framework import machine, torch


def calls_to_the_kernel(compute):
    """Python calls from an operation to the last loop of a kernel, in a state that is reached."""
    names = [code.co_name for code in codes_called(compute, warm=3)]
    return len(names) - names[::-1].index("loop")


@pytest.mark.parametrize("policy", ["fp16", "fp32"])
def test_a_sum_reaches_the_kernel_in_forty_calls(policy):
    with machine(policy):
        x, y = torch.ones(4, 4) * 1.0, torch.ones(4, 4) * 0.5
        assert calls_to_the_kernel(lambda: x + y) <= 40
