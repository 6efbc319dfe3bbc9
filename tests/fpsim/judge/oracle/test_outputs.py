"""The quick oracle of products against the one in fractions, and by hand (differential, golden)."""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
from fpsim.elementwise.codes import from_codes
from fpsim.judge.oracle.outputs import Outputs, code_of
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.judge.verify.engines import ComparedProduct
from fpsim.judge.verify.random_units import SHAPES
from fpsim.records.settings import Settings
from fpsim.records.units import MatrixUnit
from tests.tiers import pick


@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_both_oracles_agree_on_random_units(shape):
    for number in range(pick(4, 60, 400)):
        product = ComparedProduct(77, number, SHAPES[shape], None)
        codes, flags = product.expected
        alone = product.alone
        for n in range(0, len(product.judged), pick(7, 1, 1)):
            i, j = product.judged[n]
            datum, raised = one_output(
                product.ask, alone.a[i].tolist(), alone.b[:, j].tolist(), int(alone.start[i, j]),
                product.draw(i, j),
            )
            wanted = code_of(datum, product.ask.settings.format)
            assert (codes[n], flags[n]) == (wanted, int(raised)), (number, i, j)


def ask(**choices):
    choices = {"partials": fp.BINARY32, "window": 24} | choices
    unit = MatrixUnit("OURS", "a test", (fp.BINARY16,), **choices)
    return Ask(unit, fp.BINARY16, fp.BINARY16, Settings(unit.partials))


def output(asked, a, b, start=0.0):
    """The value of one row times one column."""
    half, partials = fp.Context(fp.BINARY16), fp.Context(asked.unit.partials)
    row, column = half.array(a).codes().tolist(), half.array(b).codes().tolist()
    c = int(partials.array(start).codes())
    code, flags = Outputs(asked, [row], [column], [[c]])(0, 0)
    return float(
        from_codes(np.array([code], partials.format.code_dtype), partials.format)[0]
    ), flags


def test_known_sums():
    assert output(ask(terms=2), [1.0, 2.0], [3.0, 4.0]) == (11.0, fp.Flags.NONE)
    # 2**-24 is the last digit that a window of 24 keeps beside 1.
    assert output(ask(terms=2), [1.0, 2.0**-12], [1.0, 2.0**-12], 1.0)[0] == 2.0
    whole, cut = (
        output(ask(terms=2, window=w), [1.0, 2.0**-10], [1.0, 2.0**-10])[0] for w in (20, 19)
    )
    assert (whole, cut) == (1 + 2.0**-20, 1.0)


def test_pairs_count_from_the_first_term_of_each_pass_or_of_all():
    """binary16 sums: 2048 + 1 is a tie and stays; 1 + 1 + 2048 is 2050."""
    choices = {"terms": 4, "order": "pairs", "accumulator": fp.BINARY16, "window": None}
    a = [1.0, 0.0, 2048.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    ones = [1.0] * 8
    # Two calls of a pass: terms 0, 1, 4, 5 and then 2, 3, 6, 7.
    assert output(ask(calls=2, **choices), a, ones)[0] == 2050.0
    assert output(ask(calls=None, **choices), a, ones)[0] == 2050.0
    # A call is a pass: 2049 is a tie and goes to 2048, twice.
    assert output(ask(calls=1, **choices), a, ones)[0] == 2048.0


def test_products_of_a_window_are_rounded_to_the_partials_and_align_by_that():
    """(1 + 2**-10)**2 = 1 + 2**-9 + 2**-20 is 1 + 2**-9 in binary16."""
    x = 1 + 2.0**-10
    exact = output(ask(terms=1, accumulator=fp.BINARY32), [x], [x], -1.0)
    choices = {"terms": 1, "partials": fp.BINARY16, "product_rounded": True}
    rounded = output(ask(accumulator=fp.BINARY32, **choices), [x], [x], -1.0)
    assert (exact[0], rounded[0]) == (2.0**-9 + 2.0**-20, 2.0**-9)
    # 1.5 * 1.5 = 2.25 has exponent 1: with one digit of window, 2 is left; unrounded 2 halves.
    two = output(ask(window=1, **choices), [1.5], [1.5])[0]
    assert (two, output(ask(window=1, terms=1), [1.5], [1.5])[0]) == (2.0, 2.0)
    three = output(ask(window=1, **choices), [1.75], [1.75])[0]
    assert (three, output(ask(window=1, terms=1), [1.75], [1.75])[0]) == (3.0, 3.0)
    beside = output(ask(window=2, **choices), [1.75], [1.75], 0.25)[0]
    assert (beside, output(ask(window=2, terms=1), [1.75], [1.75], 0.25)[0]) == (3.0, 3.25)
