"""Products rounded per operation by the general engine: differential (oracle), corners."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.judge.oracle import operate, product_word
from fpsim.judge.oracle.rounding import OracleSettings
from fpsim.judge.oracle.sums import sum_of
from fpsim.kernels.by_operation.general import CHAINS
from fpsim.kernels.by_operation.sums import COLUMN_BLOCK
from fpsim.products.by_operation.chain import Chain
from fpsim.products.by_operation.dispatch import rounding_places
from fpsim.products.by_operation.general import run_general
from fpsim.products.jobs.job import Job
from fpsim.state.bits import Replay
from fpsim.state.draws import draw_places
from tests.tiers import pick, reaches

SEED = 9


def outcome(name, context, a, b, *, by_output=True):
    """Codes of values, flags of each output and of all."""
    shape = len(a), b.shape[1]
    places = draw_places(context.core, rounding_places(name, len(b)), shape)
    values, flags = np.zeros(shape, a.dtype), np.zeros(shape, np.uint8) if by_output else None
    job = Job(Chain(context.core.settings, name), a, b, values, flags, places)
    assert run_general(job)
    codes = to_codes(values, context.format).tolist()
    return codes, flags.tolist() if by_output else None, job.flags


def judged(name, context, x, y, i):
    """Code and flags of one output by the definition, operation by operation."""
    settings, fmt = context.core.settings, context.format
    base = OracleSettings(settings.rounding, nan=settings.nan, subnormals=settings.subnormals)
    r = settings.random_most

    def at(place):
        return replace(base, word=product_word(SEED, 0, i, place, r)) if r else base

    per_term = CHAINS[name]
    code, raised, total = 0, fp.Flags.NONE, None
    for k, pair in enumerate(zip(x, y, strict=True)):
        first = per_term * k
        if name == "fused" and total is not None:
            total, raised = operate("fma", (*pair, total), fmt, at(first))
        else:
            total_product, raised = operate("multiply", pair, fmt, at(first))
            if total is None:
                total = total_product
            else:
                code |= int(raised)
                total, raised = operate("add", (total, total_product), fmt, at(first + 1))
        code |= int(raised)
    return total, code


#: The quick tier has each chain to nearest and with random bits: this kernel compiles longest.
EVERY = [
    (fmt, name, rounding)
    for fmt in (fp.BINARY16, fp.E5M2)
    for name in ("separate", "fused")
    for rounding in (fp.RNE, fp.SR(11), fp.RTP, fp.SR(20))
]
CASES = [c for c in EVERY if c[2] is fp.RNE or (c[0] == fp.BINARY16 and c[2] == fp.SR(11))]


@pytest.mark.parametrize(("fmt", "name", "rounding"), pick(CASES, EVERY, EVERY), ids=repr)
def test_every_output_is_that_of_the_oracle(fmt, name, rounding):
    rng = np.random.default_rng(2)
    codes = [rng.integers(0, fmt.n_codes, s).astype(fmt.code_dtype) for s in ((5, 6), (6, 3))]
    near = fp.Context(fmt, overflow="saturate")
    codes[0][1:3] = near.array(rng.standard_normal((2, 6))).codes()
    codes[1][:, :2] = near.array(rng.standard_normal((6, 2))).codes()
    context = fp.Context(fmt, rounding=rounding, seed=SEED)
    a, b = (from_codes(c, fmt) for c in codes)
    values, flags, sticky = outcome(name, context, a, b)
    union = 0
    for i, (m, n) in enumerate(np.ndindex(5, 3)):
        x, y = codes[0][m].tolist(), codes[1][:, n].tolist()
        assert (values[m][n], flags[m][n]) == judged(name, context, x, y, i), (m, n)
        union |= flags[m][n]
    assert sticky == union
    if reaches("full") or rounding is fp.RNE:
        assert outcome(name, context, a, b, by_output=False) == (values, None, union)


def test_kahans_sum_is_that_of_the_rounded_products():
    rng = np.random.default_rng(3)
    half = fp.Context(fp.BINARY16)
    a, b = (half.array(np.abs(rng.standard_normal(s)) + 0.1) for s in ((3, 20), (20, 2)))
    values, flags, _ = outcome("kahan", half, a.values, b.values)
    for m, n in np.ndindex(3, 2):
        pairs = zip(a.codes()[m].tolist(), b.codes()[:, n].tolist(), strict=True)
        products = [operate("multiply", pair, fp.BINARY16)[0] for pair in pairs]
        code, raised = sum_of("kahan", products, fp.BINARY16, lambda place: OracleSettings())
        assert values[m][n] == code
        assert flags[m][n] & int(raised) == int(raised)


@pytest.mark.parametrize("n", [1, COLUMN_BLOCK - 1, COLUMN_BLOCK, COLUMN_BLOCK + 1])
def test_columns_that_fill_the_last_panel_raise_nothing(n):
    """Infinities times its zeros would be invalid."""
    a = np.float32([[np.inf, 1.0]])
    b = np.ones((2, n), np.float32)
    values, flags, _ = outcome("separate", fp.Context(fp.BINARY16), a, b)
    assert values == [[0x7C00] * n]
    assert flags == [[0] * n]
    assert outcome("separate", fp.Context(fp.BINARY16), a, b, by_output=False)[2] == 0


@pytest.mark.parametrize("name", pick(["separate"], list(CHAINS), list(CHAINS)))
def test_integers_of_another_source_lie_place_by_place(name):
    """Philox's own R, handed over as integers, gives what Philox gives."""
    rng = np.random.default_rng(4)
    half = fp.Context(fp.BINARY16)
    a, b = (half.array(rng.standard_normal(s)).values for s in ((3, 5), (5, COLUMN_BLOCK + 1)))
    context = fp.Context(fp.BINARY16, rounding=fp.SR(9), seed=SEED)
    outputs = 3 * (COLUMN_BLOCK + 1)
    words = [
        [product_word(SEED, 0, i, place, 9) >> 23 for i in range(outputs)]
        for place in rounding_places(name, 5)
    ]
    bits = Replay([np.array(words).reshape(-1, 3, COLUMN_BLOCK + 1)])
    replayed = fp.Context(fp.BINARY16, rounding=fp.SR(9), bits=bits)
    by_output = reaches("full")  # flags of each output are a kernel of their own
    expected = outcome(name, context, a, b, by_output=by_output)
    assert outcome(name, replayed, a, b, by_output=by_output) == expected


def test_rows_on_several_threads_are_the_same():
    rng = np.random.default_rng(5)
    half = fp.Context(fp.BINARY16)
    a, b = (half.array(rng.standard_normal(s)).values for s in ((64, 40), (40, 33)))
    context = fp.Context(fp.BINARY16, rounding=fp.SR(13), seed=SEED)
    threads, outcomes = fp.get_threads(), []
    try:
        for number in (1, 2):
            fp.set_threads(number)
            outcomes.append(outcome("separate", context, a, b))
    finally:
        fp.set_threads(threads)
    assert outcomes[0] == outcomes[1]
