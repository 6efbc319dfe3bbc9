"""Gradients to the input of strided convolutions: without the zeros, the same bits (differential).

The reference is the convolution over the spread gradient, which test_conv.py holds to the oracle.
"""

from __future__ import annotations

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim.products import conv
from fpsim.products.by_unit import images
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.phases import common_windows, phases, zeros_do_not_matter
from fpsim.records.geometry import Geometry, geometry
from fpsim.records.rounding import RNE, SR
from fpsim.records.settings import Settings
from fpsim.records.units import find_unit
from fpsim.state.draws import NO_PLACES
from tests.fpsim import in_partials

CASES = [
    ((8, 7), (3, 3), (2, 2), "SAME"),
    ((6, 6), (2, 2), (2, 2), "SAME"),
    ((5, 6), (1, 1), (2, 3), "VALID"),
    ((9, 4), (4, 2), (3, 1), ((2, 1), (0, 1))),
    ((7, 7), (5, 3), (2, 3), "VALID"),
    ((8, 6), (3, 3), (2, 2), "SAME"),
    ((4, 6), (1, 2), (2, 3), ((0, 0), (1, 2))),
]

#: Cases whose phases have as many outputs each, and phases that meet a number.
ALIKE = [(CASES[1], 4), (CASES[2], 1), (CASES[3], 3), (CASES[5], 4), (CASES[6], 2)]
WITHOUT_ZEROS = ["AMP_F16_F32", "AMP_F16_F32.exact", "AMP_F16_F32.sticky", "ADA_E4M3_F32"]


def spread(case) -> Geometry:
    image, kernel, stride, padding = case
    return geometry(image, kernel, stride, padding).turned()


@pytest.mark.parametrize("case", CASES)
def test_every_output_and_term_that_meets_a_number_comes_once(case):
    shape = spread(case)
    visits = np.zeros(shape.output, int)
    met = 0
    for phase in phases(shape):
        visits[phase.outputs] += 1
        if phase.geometry is None:
            continue
        assert visits[phase.outputs].shape == phase.geometry.output
        assert np.zeros(shape.kernel)[phase.terms].shape == phase.geometry.kernel
        met += _numbers(phase.geometry)
    assert (visits == 1).all()
    assert met == _numbers(shape)


def _numbers(shape: Geometry) -> int:
    """Pairs of an output and a term that meet a number of the input."""
    met = 1
    for axis in (0, 1):
        kernel, before, spacing, output, image = (
            pair[axis]
            for pair in (shape.kernel, shape.before, shape.spacing, shape.output, shape.image)
        )
        places = np.add.outer(np.arange(output), np.arange(kernel)) - before
        met *= int(((places % spacing == 0) & (places >= 0) & (places < image * spacing)).sum())
    return met


def both(name, case, groups=1, special=None, rounding=RNE):
    """The gradient without zeros, and the convolution over the spread one; terms of each."""
    unit = find_unit(name)
    rng = np.random.default_rng(CASES.index(case))
    shape, channels, outputs = spread(case), 20, 6
    context = fp.Context(unit.inputs[0], overflow="saturate")
    size = (2, *shape.image, channels * groups)
    # Magnitudes that differ from place to place: sums of tiny ones underflow, some to -0.
    scales = 2.0 ** rng.integers(-24, 4, (*size[:3], 1))
    gradient = context.array(rng.standard_normal(size) * scales).carrier
    w = context.array(rng.standard_normal((*shape.kernel, outputs, channels * groups)) / 8).carrier
    if special is not None:
        w[0, 0, 0, 0] = special
    settings = UnitSettings(unit, unit.inputs[0], unit.inputs[-1], Settings(fp.BINARY16, rounding))
    work = conv.input_gradient(settings, gradient, w, replace_turned(shape), groups)
    assert isinstance(work, conv.InputGradient)
    reference = conv.Forward(work.settings, work.x, work.shape, work.kernels)
    return work, reference


def replace_turned(shape: Geometry) -> Geometry:
    """The forward geometry of a turned one."""
    (kh, kw), (top, left) = shape.kernel, shape.before
    return Geometry(
        shape.output, shape.kernel, shape.spacing, (kh - 1 - top, kw - 1 - left), shape.image
    )


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", WITHOUT_ZEROS)
def test_without_zeros_values_and_flags_are_the_same(name, case, groups):
    work, reference = both(name, case, groups)
    assert zeros_do_not_matter(work.settings, work.shape.spacing, work.kernels)
    for got, wanted in zip(work.multiply(NO_PLACES), reference.multiply(NO_PLACES), strict=True):
        assert got.tobytes() == wanted.tobytes()


def test_the_products_by_zeros_are_not_computed(monkeypatch):
    work, reference = both("AMP_F16_F32", CASES[1])
    terms = []
    for name in ("accumulate", "accumulate_whole"):
        usual = getattr(conv, name)

        def counted(settings, a, b, *rest, usual=usual, **more):
            terms.append(a.shape[0] * len(b))
            return usual(settings, a, b, *rest, **more)

        monkeypatch.setattr(conv, name, counted)
    reference.multiply(NO_PLACES)
    spread_terms = sum(terms)
    terms.clear()
    work.multiply(NO_PLACES)
    assert sum(terms) * 4 == spread_terms


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("case", "products"), ALIKE)
def test_phases_alike_share_laid_out_images(case, products, groups, monkeypatch):
    """The pieces of one product, and a loop of tiles for each phase and its channels left over."""
    laid, usual = [], images.fill_windows
    monkeypatch.setattr(images, "fill_windows", lambda *args: laid.append(usual(*args)))
    monkeypatch.setattr(images, "_SMALLEST", 1 << 40)
    work, _ = both("AMP_F16_F32.exact", case, groups)
    assert len(common_windows(work.shape)[1]) == products
    work.multiply(NO_PLACES)
    assert len(laid) == groups * len(work.parts) == groups * 2


@pytest.mark.parametrize("case", [case for case in CASES if case not in dict(ALIKE)])
def test_phases_of_different_outputs_have_no_windows_in_common(case):
    assert common_windows(spread(case)) is None


def test_phases_that_no_fast_engine_takes_together_are_computed_apart(monkeypatch):
    """The first product of all phases runs, the one of the channels left over does not."""
    outcomes, usual = [], conv.accumulate_whole

    def only_once(*args, **choices):
        outcomes.append(not outcomes and usual(*args, **choices))
        return outcomes[-1]

    work, reference = both("AMP_F16_F32", CASES[5])
    monkeypatch.setattr(conv, "accumulate_whole", only_once)
    got, wanted = work.multiply(NO_PLACES), reference.multiply(NO_PLACES)
    assert outcomes == [True, False]
    assert all(x.tobytes() == y.tobytes() for x, y in zip(got, wanted, strict=True))


@pytest.mark.parametrize("name", ["AMP_F16_F16", "SLIC_F16_F32", "A100_BF16_F32"])
def test_zeros_stay_where_they_may_change_a_partial(name):
    """A partial of binary16 may be -0, which a pass of zeros turns into +0."""
    work, reference = both(name, CASES[0])
    assert not zeros_do_not_matter(work.settings, work.shape.spacing, work.kernels)
    for got, wanted in zip(work.multiply(NO_PLACES), reference.multiply(NO_PLACES), strict=True):
        assert got.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("special", [np.inf, np.nan])
def test_zeros_times_an_infinity_are_computed(special):
    work, reference = both("AMP_F16_F32", CASES[0], special=special)
    for got, wanted in zip(work.multiply(NO_PLACES), reference.multiply(NO_PLACES), strict=True):
        assert got.tobytes() == wanted.tobytes()
    assert np.isnan(work.multiply(NO_PLACES)[0]).any()


def test_passes_keep_their_numbers_where_partials_are_stored_stochastically():
    context = fp.Context(fp.BINARY16, rounding=SR(10), seed=3)
    rng = np.random.default_rng(0)
    gradient = context.array(rng.standard_normal((2, 4, 4, 32)))
    w = context.array(rng.standard_normal((3, 3, 5, 32)))
    got = in_partials.conv2d_input_gradient(
        gradient, w, "AMP_F16_F16", (2, 8, 8, 5), stride=2, context=context
    )
    again = fp.Context(fp.BINARY16, rounding=SR(10), seed=3)
    apart = np.zeros((2, 7, 7, 32))
    apart[:, ::2, ::2] = gradient.values
    turned = np.ascontiguousarray(w.values[::-1, ::-1].transpose(0, 1, 3, 2))
    wanted = in_partials.conv2d(
        again.array(apart), again.array(turned), "AMP_F16_F16", padding=((2, 1), (2, 1)),
        context=again,
    )
    assert np.array_equal(got.values, wanted.values)
