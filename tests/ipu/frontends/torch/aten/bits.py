"""What tests of tables share: an operation on the machine in binary16, and numpy's binary16."""

from __future__ import annotations

import numpy as np

from tests.ipu.frontends.torch.framework import machine, torch

__all__ = ["half", "numbers", "on_machine", "same"]


def numbers(*shape, seed=0):
    """Random numbers of binary16, as a float32 tensor."""
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float16)
    return torch.from_numpy(values.astype(np.float32))


def half(x):
    """A tensor as numpy's binary16."""
    return x.detach().numpy().astype(np.float16)


def on_machine(function, *tensors, **options):
    """What a function of tensors gives on a machine that computes in binary16; none of it on the
    host."""
    with machine("p=f16,c=f16", **options) as session:
        result = function(*tensors)
    assert session.report()["host"]["elements"] == 0
    return result


def same(result, expected):
    """Equal codes, in a float32 tensor."""
    assert result.dtype == torch.float32
    np.testing.assert_array_equal(
        half(result).view(np.uint16), np.asarray(expected, np.float16).view(np.uint16)
    )
    assert torch.equal(result, result.half().float())
