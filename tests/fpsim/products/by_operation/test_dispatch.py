"""Products rounded after every operation, against the definition on codes (differential, law)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import to_codes
from fpsim.judge.oracle import operate, product_word
from fpsim.judge.oracle.rounding import OracleSettings
from fpsim.linalg import dot, rounded_matmul
from fpsim.state.bits import Replay
from tests.threads import on_threads
from tests.tiers import pick, reaches

FORMATS = pick((fp.BINARY16, fp.E4M3FN), *[(fp.BINARY16, fp.BFLOAT16, fp.E4M3FN, fp.BINARY32)] * 2)
IPU = fp.SR(13, subnormal_bits=16)
ROUNDINGS = pick(
    (fp.RNE, fp.RTN, IPU),
    *[(*fp.records.rounding.MODES.values(), fp.SR(8), IPU, fp.SR(20))] * 2,
)
CHAINS = {"separate": {}, "fused": {"fused": True}, "kahan": {"kahan": True}}


class Judge:
    """One output of a product from its definition."""

    def __init__(self, context, output):
        self.context, self.output, self.flags = context, output, fp.Flags.NONE

    def do(self, operation, place, *codes):
        s = self.context.core.settings
        word = 0
        if s.random_most:
            word = product_word(self.context.core.seed, 0, self.output, place, s.random_most)
        settings = OracleSettings(s.rounding, overflow=s.overflow, word=word)
        code, flags = operate(operation, codes, s.format, settings)
        self.flags |= flags
        return code

    def separate(self, a, b):
        s = self.do("multiply", 0, a[0], b[0])
        for k in range(1, len(a)):
            s = self.do("add", 2 * k + 1, s, self.do("multiply", 2 * k, a[k], b[k]))
        return s

    def fused(self, a, b):
        s = self.do("multiply", 0, a[0], b[0])
        for k in range(1, len(a)):
            s = self.do("fma", k, a[k], b[k], s)
        return s

    def kahan(self, a, b):
        s, c = self.do("multiply", 0, a[0], b[0]), 0
        for k in range(1, len(a)):
            y = self.do("subtract", 5 * k + 1, self.do("multiply", 5 * k, a[k], b[k]), c)
            t = self.do("add", 5 * k + 2, s, y)
            c = self.do("subtract", 5 * k + 4, self.do("subtract", 5 * k + 3, t, s), y)
            s = t
        return s


def values(fmt, shape, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-6, 4, shape)
    x[rng.random(shape) < 0.05] = fmt.max
    return fp.Context(fmt, overflow="saturate").array(x)


#: Kernels take seconds to compile for each mode, so the quick tier has directed roundings of one
#: chain, and quarters to nearest.
COMBINED = [
    (fmt, rounding, chain)
    for fmt in FORMATS
    for rounding in ROUNDINGS
    for chain in CHAINS
    if reaches("full")
    or rounding is fp.RNE
    or (fmt == fp.BINARY16 and (chain == "separate" or rounding is not fp.RTN))
]


@pytest.mark.parametrize(("fmt", "rounding", "chain"), COMBINED, ids=str)
def test_products_are_what_their_definition_says(fmt, rounding, chain):
    a, b = values(fmt, (5, 6), 1), values(fmt, (6, 19), 2)
    context = fp.Context(fmt, rounding=rounding, seed=4)
    got = to_codes(rounded_matmul(a, b, context=context, **CHAINS[chain]).values, fmt)
    x, y = to_codes(a.values, fmt).tolist(), to_codes(b.values, fmt).T.tolist()
    flags = fp.Flags.NONE
    for i in range(5):
        for j in range(19):
            judge = Judge(context, i * 19 + j)
            assert int(got[i, j]) == getattr(judge, chain)(x[i], y[j])
            flags |= judge.flags
    assert context.flags == flags
    assert context.operation == int(rounding.stochastic)


@pytest.mark.parametrize(
    "rounding", pick((fp.RNE, IPU), *[(fp.RNE, fp.SR(8), fp.SR(20))] * 2), ids=str
)
def test_outputs_of_batches_are_numbered_over_the_whole_result(rounding):
    a, b = values(fp.BINARY16, (2, 1, 3, 4), 1), values(fp.BINARY16, (2, 4, 5), 2)
    context = fp.Context(fp.BINARY16, rounding=rounding, seed=4)
    got = rounded_matmul(a, b, context=context).codes()
    x, y = a.codes().tolist(), np.swapaxes(b.codes(), 1, 2).tolist()
    flags = fp.Flags.NONE
    for number, (i, j, row, column) in enumerate(np.ndindex(2, 2, 3, 5)):
        judge = Judge(context, number)
        assert int(got[i, j, row, column]) == judge.separate(x[i][0][row], y[j][column])
        flags |= judge.flags
    assert context.flags == flags


@pytest.mark.parametrize("chain", ["separate", "kahan"])
def test_results_do_not_depend_on_threads(chain):
    """In the kernels of the processor's own rounding and in the general one."""
    a, b = values(fp.BINARY16, (70, 9), 1), values(fp.BINARY16, (9, 33), 2)

    def product():
        context = fp.Context(fp.BINARY16, rounding=pick(IPU, fp.SR(10), fp.SR(10)), seed=2)
        return to_codes(rounded_matmul(a, b, context=context, **CHAINS[chain]).values, fp.BINARY16)

    one, *more = (on_threads(n, product) for n in (1, 2, 3))
    assert all(np.array_equal(r, one) for r in more)


def test_given_bits_go_place_by_place():
    half = fp.Context(fp.BINARY16)
    a, b = half.array([[1.0, 1.0]]), half.array([[1.0, 1.0], [2.0**-11, 2.0**-11]])
    bits = np.zeros((4, 1, 2), int)
    bits[3, 0, 1] = 1
    context = fp.Context(fp.BINARY16, rounding=fp.SR(1), bits=Replay([bits]))
    assert context.matmul(a, b).values.tolist() == [[1.0, 1 + 2.0**-10]]


def test_traps_and_counts_see_each_output():
    context = fp.Context(fp.BINARY16, traps=fp.Flags.OVERFLOW, count=True)
    a = context.array([[1.0], [300.0]])
    with pytest.raises(fp.FloatingPointTrap) as caught:
        a @ a.T
    assert caught.value.index == (1, 1)
    context.traps = fp.Flags.NONE
    a @ a.T
    assert context.counts["", "matmul"]["OVERFLOW"] == 1


def test_numpy_finds_them():
    half = fp.Context(fp.BINARY16)
    a = half.array([[1.0, 2.0], [3.0, 4.0]])
    assert np.matmul(a, a).values.tolist() == (a @ a).values.tolist() == [[7, 10], [15, 22]]
    assert np.sum(a, axis=0).values.tolist() == a.sum(0).values.tolist() == [4, 6]
    assert float(np.mean(a)) == float(a.mean()) == 2.5
    assert float(np.dot(a[0], a[1])) == 11
    with pytest.raises(TypeError, match=r"np\.cumprod is not offered"):
        np.cumprod(a)


def test_empty_and_impossible_products():
    half = fp.Context(fp.BINARY16)
    assert rounded_matmul(half.zeros((2, 0)), half.zeros((0, 3))).values.tolist() == [[0] * 3] * 2
    assert rounded_matmul(half.zeros((0, 2)), half.zeros((2, 3))).shape == (0, 3)
    assert float(dot(half.zeros(0), half.zeros(0))) == 0
    with pytest.raises(ValueError, match="last dimension of a must equal"):
        rounded_matmul(half.zeros((2, 3)), half.zeros((2, 3)))
    with pytest.raises(ValueError, match="two equal vectors"):
        dot(half.zeros(3), half.zeros(4))
    with pytest.raises(ValueError, match="exclude each other"):
        rounded_matmul(half.zeros((2, 2)), half.zeros((2, 2)), fused=True, kahan=True)
    with pytest.raises(TypeError, match="never promotes"):
        half.matmul(half.zeros((2, 2)), fp.Context(fp.BINARY32).zeros((2, 2)))


PAIRS = [
    (fp.BINARY16, fp.RNE), (fp.BINARY32, fp.RNE), (fp.BINARY16, fp.SR(8)), (fp.BINARY32, fp.SR(8)),
]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize(("fmt", "rounding"), pick(PAIRS[:2], PAIRS, PAIRS))
def test_infinities_meet_no_zeros_but_the_operands_own(chain, fmt, rounding):
    # Panels are filled up with columns of zeros.
    context = fp.Context(fmt, rounding=rounding)
    for columns in (1, 3, 17):
        b = context.array(np.ones((2, columns)))
        for rows in ([[np.inf, 1.0]], [[np.inf, 1.0], [1.0, 1.0], [2.0, 1.0]]):
            for count in (False, True):
                counting = context.replace(count=count)
                result = rounded_matmul(
                    counting.array(rows), counting.array(b.values), context=counting,
                    **CHAINS[chain],
                )
                expected = fp.Flags.INVALID if chain == "kahan" else fp.Flags.NONE
                assert (counting.flags, bool(np.isinf(result.values[0]).all())) == (expected, True)


@pytest.mark.parametrize("chain", CHAINS)
def test_a_trap_shows_the_row_and_the_column_that_raised(chain):
    strict = fp.Context(fp.BINARY16, traps=fp.Flags.OVERFLOW)
    a, b = strict.array([[1.0, 2.0], [300.0, 3.0]]), strict.array([[1.0, 300.0], [5.0, 0.5]])
    with pytest.raises(fp.FloatingPointTrap) as trap:
        rounded_matmul(a, b, **CHAINS[chain])
    assert (trap.value.operation, trap.value.index) == ("matmul", (1, 1))
    assert [o.tolist() for o in trap.value.operands] == [[300.0, 3.0], [300.0, 0.5]]
