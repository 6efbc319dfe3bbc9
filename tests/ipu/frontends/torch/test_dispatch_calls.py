"""How many Python calls lie between an operation of torch and the kernel that computes it."""

from __future__ import annotations

import sys

import pytest

from tests.ipu.frontends.torch.framework import machine, torch


def calls_to_the_kernel(compute):
    """Python calls from an operation to the last loop of a kernel, in a state that is reached."""
    names = []

    def note(frame, event, _):
        if event == "call":
            names.append(frame.f_code.co_name)

    for _ in range(3):
        compute()
    sys.setprofile(note)
    try:
        compute()
    finally:
        sys.setprofile(None)
    return len(names) - names[::-1].index("loop") - 1  # without that of `compute`


@pytest.mark.parametrize("policy", ["fp16", "fp32"])
def test_a_sum_reaches_the_kernel_in_forty_calls(policy):
    with machine(policy):
        x, y = torch.ones(4, 4) * 1.0, torch.ones(4, 4) * 0.5
        assert calls_to_the_kernel(lambda: x + y) <= 40
