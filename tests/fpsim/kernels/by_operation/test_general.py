"""The kernel of every chain, call by call against the definition on codes (differential, corners).

The caller's fast kernels are left out: `run_general` is asked itself, with flags of each output.
"""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge.oracle import operate
from fpsim.judge.oracle.rounding import OracleSettings
from fpsim.kernels.by_operation.general import CHAINS, STEPS
from fpsim.kernels.elementwise.special import ADD, FMA, MULTIPLY, SUBTRACT
from fpsim.products.by_operation.chain import Chain
from fpsim.products.by_operation.general import run_general
from fpsim.products.jobs.job import Job
from fpsim.records.settings import Settings

HALF = fp.BINARY16


def product(name, a, b, by_output=True):
    """Codes, flags of each output, and flags of all."""
    a, b = np.float32(a), np.float32(b)
    values = np.zeros((len(a), b.shape[1]), np.float32)
    flags = np.zeros(values.shape, np.uint8) if by_output else None
    job = Job(Chain(Settings(HALF), name), a, b, values, flags)
    assert run_general(job)
    return to_codes(values, HALF), flags, job.flags


def chain(name, x, y):
    """One output and its flags, step by step."""
    flags = 0

    def do(operation, *codes):
        nonlocal flags
        code, raised = operate(operation, codes, HALF, OracleSettings())
        flags |= int(raised)
        return code

    s, c = do("multiply", x[0], y[0]), 0
    for u, v in zip(x[1:], y[1:], strict=True):
        if name == "fused":
            s = do("fma", u, v, s)
        elif name == "separate":
            s = do("add", s, do("multiply", u, v))
        else:
            z = do("subtract", do("multiply", u, v), c)
            t = do("add", s, z)
            c = do("subtract", do("subtract", t, s), z)
            s = t
    return s, flags


def check(name, a, b):
    codes, flags, raised = product(name, a, b)
    x, y = to_codes(np.float32(a), HALF).tolist(), to_codes(np.float32(b), HALF).T.tolist()
    for i, j in np.ndindex(codes.shape):
        assert (int(codes[i, j]), int(flags[i, j])) == chain(name, x[i], y[j]), (i, j)
    assert raised == np.bitwise_or.reduce(flags, axis=None)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("shape", [(1, 3, 1), (5, 4, 17), (4, 1, 16), (9, 3, 33)])
def test_tiny_terms_beside_midpoints_in_every_place(name, shape):
    """Rows beyond fours and columns beyond sixteens; addends of half a unit and a tiny one."""
    m, k, n = shape
    rng = np.random.default_rng(n)
    numbers = np.float32([1, 1 + 2.0**-10, 2.0**-11, 2.0**-12, 2.0**-24, 0.0, 3 * 2.0**-12])
    check(name, rng.choice(numbers, (m, k)) * rng.choice([-1, 1], (m, k)).astype(np.float32),
          rng.choice([1.0, 1.0, 2.0**-2, 0.75, 513 / 512], (k, n)))


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_no_number_and_what_overflows(name):
    x = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, 65504.0, -65504.0, 2.0**-24]
    x = np.append(np.float32(x), from_codes([0x7C01], HALF))  # the last one is signalling
    check(name, np.stack([x, np.roll(x, 3), x[::-1]], axis=1), np.stack([x, x, np.roll(x, 1)]))


@pytest.mark.parametrize("name", CHAINS)
def test_columns_that_fill_the_last_panel_raise_nothing(name):
    """inf times their zeros would be INVALID."""
    _, _, raised = product(name, [[np.inf]], [[1.0]], by_output=False)
    assert raised == 0
    _, _, raised = product(name, [[65504.0]] * 5, [[1.0, 1.0, 2.0]], by_output=False)
    assert raised == 5


def test_a_kahan_sum_keeps_what_each_addition_loses():
    """1 and 32 times 2**-12: alone each is lost, together they are 2**-7."""
    terms, ones = np.float32([[1.0] + [2.0**-12] * 32]), np.ones((33, 2))
    results = {name: from_codes(product(name, terms, ones)[0], HALF).tolist() for name in CHAINS}
    lost, recovered = [[1.0, 1.0]], [[1 + 2.0**-7] * 2]
    assert results == {"separate": lost, "fused": lost, "kahan": recovered}


def test_the_rounding_places_of_a_term_are_its_steps():
    assert CHAINS == {"separate": 2, "fused": 1, "kahan": 5}
    operations = {name: [step[0] for step in steps] for name, steps in STEPS.items()}
    assert operations["separate"] == [MULTIPLY, ADD]
    assert operations["fused"] == [FMA]
    assert operations["kahan"] == [MULTIPLY, SUBTRACT, ADD, SUBTRACT, SUBTRACT]
