"""Operators of tensors: the device's operations (law), their gradients, refusals."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import ipu.learn
from fpsim import BINARY16, BINARY32
from ipu.learn.tensor import Tensor, gradients, nodes
from ipu.learn.variables import Variable
from ipu.machine import Device, FpCtl

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
VERBS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
SHAPES = [((2, 3), (2, 3)), ((2, 3), (3,)), ((1, 3), (2, 3)), ((2, 1), (1, 3)), ((), (2, 3))]


def variables(*shapes, fmt=BINARY32, device=None):
    device = device or Device()
    rng = np.random.default_rng(len(shapes))
    return [
        Variable(device.from_host(rng.uniform(1, 2, shape), fmt), device, f"v{i}")
        for i, shape in enumerate(shapes)
    ]


@pytest.mark.parametrize("control", [FpCtl(), FpCtl(esr=True)], ids=["nearest", "stochastic"])
@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("sign", OPERATORS)
def test_an_operator_is_one_operation_of_the_device(sign, left, right, control):
    """The result's bits, whichever operand broadcasts; a spread operand rounds nothing."""
    x, y = variables(left, right, fmt=BINARY16, device=Device(seed=5, control=control))
    result = OPERATORS[sign](Tensor(x.array, x.device), Tensor(y.array, y.device))
    device = Device(seed=5, control=control)
    wide = [np.broadcast_to(v.array.values, result.shape) for v in (x, y)]
    a, b = (device.from_host(v, BINARY16) for v in wide)
    assert result.array.codes().tolist() == getattr(device, VERBS[sign])(a, b).codes().tolist()


@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("sign", OPERATORS)
def test_gradients_reach_both_operands(sign, left, right):
    x, y = variables(left, right)
    result = OPERATORS[sign](x, y)
    seed = x.device.from_host(np.ones(result.shape), BINARY32)
    slopes = gradients(result, [x, y], seed)
    a, b = x.array.values.astype(float), y.array.values.astype(float)
    by = {
        "+": (1.0 + 0 * (a + b), 1.0 + 0 * (a + b)), "-": (1.0 + 0 * (a + b), -1.0 + 0 * (a + b)),
        "*": (b + 0 * a, a + 0 * b), "/": (1 / b + 0 * a, -a / b**2),
    }[sign]
    for variable, share, gradient in zip((x, y), by, slopes, strict=True):
        lead = share.ndim - len(variable.shape)
        axes = tuple(range(lead)) + tuple(
            lead + i for i, n in enumerate(variable.shape) if n == 1 < share.shape[lead + i]
        )
        wanted = share.sum(axes).reshape(variable.shape)
        assert gradient.shape == variable.shape
        np.testing.assert_allclose(gradient.values, wanted, rtol=1e-6)


def test_numbers_are_constants_of_the_format():
    device = Device()
    x = Tensor(device.from_host([1.0, 3.0], BINARY16), device)
    tenth = float(device.context(BINARY16).constant(0.1))
    for result, wanted in (
        (x + 0.1, x.array.values + tenth), (0.1 + x, tenth + x.array.values),
        (x - 0.1, x.array.values - tenth), (0.1 - x, tenth - x.array.values),
        (x * 0.1, x.array.values * tenth), (0.1 * x, tenth * x.array.values),
        (x / 3, x.array.values / 3), (1 / x, 1 / x.array.values),
    ):
        assert result.dtype == BINARY16
        assert result.array.values.tolist() == wanted.astype(np.float16).tolist()
    with pytest.raises(ValueError, match=r"1e\+06 is beyond binary16"):
        x + 1e6


def test_products_powers_signs_and_slices():
    (x,) = variables((3, 3))
    v = x.array.values
    np.testing.assert_allclose((x @ x).array.values, v @ v, rtol=1e-6)
    assert (x**1) is x
    assert (x**3).array.values.tolist() == (v * v * v).tolist()
    assert (-x).array.values.tolist() == (-v).tolist()
    assert x[1:, ::2].array.values.tolist() == v[1:, ::2].tolist()
    (gradient,) = gradients((x**3)[:1], [x], x.device.from_host(np.ones((1, 3)), BINARY32))
    np.testing.assert_allclose(gradient.values[0], 3 * v[0] ** 2, rtol=1e-6)
    assert not gradient.values[1:].any()


@pytest.mark.parametrize(
    ("call", "kind", "sentence"),
    [
        (lambda x: x + np.ones(3), TypeError, r"^\+ takes a Tensor, got ndarray; make one with T"),
        (lambda x: np.ones(3) * x, TypeError, r"^\* takes a Tensor, got ndarray"),
        (lambda x: x @ 2.0, TypeError, r"^@ takes a Tensor, got float"),
        (lambda x: x / True, TypeError, r"^/ takes a Tensor, got bool"),
        (lambda x: x + x[:, :2], ValueError, r"shapes \(2, 3\) and \(2, 2\), which do not broadc"),
        (lambda x: x @ x, ValueError, r"a has shape \(2, 3\), b has shape \(2, 3\)"),
        (lambda x: x**0.5, TypeError, r"n=0\.5 is not a whole number"),
        (lambda x: x**-1, ValueError, r"n=-1 is too small; use 1 or more"),
        (lambda x: x**65, ValueError, r"n=65 is beyond 64 products"),
        (lambda x: x[0], TypeError, r"index=0 does not consist of slices; use np\.s_"),
        (
            lambda x: x + variables((2, 3), fmt=BINARY16, device=x.device)[0], TypeError,
            r"fpsim never promotes",
        ),
    ],
)
def test_refusals(call, kind, sentence):
    (x,) = variables((2, 3))
    with pytest.raises(kind, match=sentence):
        call(x)


def test_the_package_has_what_a_network_of_ones_own_takes():
    for name in ipu.learn.__all__:
        assert getattr(ipu.learn, name) is not None
    assert {"SGD", "MIXED", "Trainer", "StaticLossScale", "dense", "relu"} <= set(ipu.learn.__all__)


@pytest.mark.parametrize("sign", ["+", "*"])
def test_an_operand_that_broadcasts_costs_nothing_in_either_place(sign):
    small, large = variables((3,), (2, 3))
    for pair in ((small, large), (large, small)):
        assert len(nodes(OPERATORS[sign](*pair))) == 1
