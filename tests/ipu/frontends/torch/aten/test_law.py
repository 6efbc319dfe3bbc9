"""The law in PyTorch: overloads that name rows element by element compute what the rows compute."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from ipu import ops
from tests.ipu.frontends.torch.framework import machine, torch
from tests.ipu.ops.law import (
    FORMATS,
    Outcome,
    codes_of,
    codes_of_one,
    codes_of_two,
    hard_codes,
    of_row,
    outcome,
)
from tests.ipu.ops.test_table import rows_in

aten = pytest.importorskip("ipu.frontends.torch.aten")

FAMILIES = (ops.activations, ops.arithmetic, ops.bounds, ops.functions)
ROWS = {row for family in FAMILIES for row in ops.PRIMITIVES.values()
        if row is getattr(family, row.name, None)}
DTYPES = {"binary16": torch.float16, "bfloat16": torch.bfloat16}

#: Arguments of overloads beside their tensors, and the options of the row that they are.
OPTIONS = {
    "clamp.default": ({"min": -0.5, "max": 2.0}, {"low": -0.5, "high": 2.0}),
    "hardtanh.default": ({"min_val": -1.0, "max_val": 1.0}, {"low": -1.0, "high": 1.0}),
    "hardtanh_backward.default": (
        {"min_val": -0.5, "max_val": 2.0}, {"low": -0.5, "high": 2.0}
    ),
    "hardshrink.default": ({"lambd": 0.25}, {"least": 0.25}),
    "hardshrink_backward.default": ({"lambd": 0.25}, {"least": 0.25}),
    "clamp_min.default": ({"min": 0.25}, {"low": 0.25}),
    "clamp_max.default": ({"max": 0.25}, {"high": 0.25}),
    "celu.default": ({"alpha": 2.0}, {"alpha": 2.0, "input_scale": 0.5}),
    "elu.default": ({"alpha": 0.5, "scale": 2.0}, {"alpha": 0.5, "scale": 2.0}),
    "elu_backward.default": (
        {"alpha": 0.5, "scale": 2.0, "input_scale": 1.0, "is_result": False},
        {"alpha": 0.5, "scale": 2.0},
    ),
    "softplus.default": ({"beta": 2.0, "threshold": 3.0}, {"beta": 2.0, "threshold": 3.0}),
    "softplus_backward.default": (
        {"beta": 2.0, "threshold": 3.0}, {"beta": 2.0, "threshold": 3.0}
    ),
    "leaky_relu.default": ({"negative_slope": 0.25}, {"slope": 0.25}),
    "leaky_relu_backward.default": (
        {"negative_slope": 0.25, "self_is_result": False}, {"slope": 0.25}
    ),
    "threshold_backward.default": ({"threshold": 0.5}, {"least": 0.5}),
    "add.Tensor": ({"alpha": 0.3}, {"factor": 0.3}),
    "sub.Tensor": ({"alpha": 3}, {"factor": 3.0}),
    "addcmul.default": ({"value": 0.3}, {"factor": 0.3}),
    "addcdiv.default": ({"value": 0.3}, {"factor": 0.3}),
    "xlogy.Tensor": ({}, {"passes_nan": True}),
    "special_xlog1py.default": ({}, {"passes_nan": True}),
}
#: Overloads whose tests stand elsewhere, and where.
ELSEWHERE = {
    "other arguments of the same handler": (
        "add.Scalar", "sub.Scalar", "rsub.Scalar", "rsub.Tensor", "mul.Scalar", "div.Scalar",
        "clamp.Tensor", "clamp_min.Tensor", "clamp_max.Tensor", "pow.Scalar", "pow.Tensor_Scalar",
        "fmod.Scalar", "lerp.Scalar", "remainder.Scalar", "remainder.Scalar_Tensor",
        "floor_divide.Scalar", "xlogy.Scalar_Self", "xlogy.Scalar_Other",
        "special_xlog1py.self_scalar", "special_xlog1py.other_scalar",
    ),
    "three rows by an argument: below": ("div.Tensor_mode", "div.Scalar_mode"),
    "numbers of the host's generator: test_exact.py": (
        "normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor",
    ),
    "binary16 alone: test_pointwise.py": ("nextafter.default",),
    "shapes and masks: test_activations.py": (
        "glu.default", "glu_backward.default", "native_dropout.default",
        "native_dropout_backward.default",
    ),
}


def entries():
    """Overloads that name rows of the families, by how many tensors they take."""
    skipped = {name for names in ELSEWHERE.values() for name in names}
    return [
        name for name, entry in sorted(aten.TABLE.items())
        if name not in skipped and entry.rows and entry.rows[0] in ROWS
    ]


def overload(name):
    base, _, form = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), form)


def operands(name):
    """How many tensors an overload takes, that must be given; `log_sigmoid`'s buffer is none."""
    arguments = overload(name)._schema.arguments
    return [a.name for a in arguments if str(a.type) == "Tensor" and a.name != "buffer"]


def tensors(codes, fmt):
    return [torch.from_numpy(c.view(np.int16).copy()).view(DTYPES[fmt.name]) for c in codes]


def of_torch(name, fmt, codes, *, traps=False, **choices):
    extra = dict(OPTIONS.get(name, ({}, {}))[0])
    if name == "log_sigmoid_backward.default":
        extra["buffer"] = torch.empty(0)
    arguments = dict(zip(operands(name), tensors(codes, fmt), strict=True))
    with machine("fp32", target="hypothetical", traps=traps, **choices) as session:
        try:
            result = overload(name)(**arguments, **extra)
        except FloatingPointError:
            return Outcome([], session.device.status_word, True)
        result = result[0] if isinstance(result, tuple) else result
        assert session.report()["native"] == 0
        stored = result.contiguous().view(torch.int16).numpy().view(np.uint16)
        return outcome(stored, fmt, session.device.status_word)


def of_the_row(name, fmt, codes, *, traps=False, **choices):
    entry, options = aten.TABLE[name], OPTIONS.get(name, ({}, {}))[1]
    row = entry.rows[0]

    def compute(device, *arrays):
        if not entry.gradient:
            return row.value(device, *arrays, **options)
        names = operands(name)
        gradient = next(a for n, a in zip(names, arrays, strict=True) if n.startswith("grad"))
        (saved,) = (a for a in arrays if a is not gradient)
        return row.pull(0, device, gradient, (saved,), **options)

    return of_row(compute, fmt, codes, traps=traps, **choices)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("name", entries())
def test_values_and_status_are_those_of_the_row(name, fmt):
    codes = codes_of(len(operands(name)), fmt)
    ours, row = of_torch(name, fmt, codes), of_the_row(name, fmt, codes)
    differing = [i for i, (a, b) in enumerate(zip(ours.codes, row.codes, strict=True)) if a != b]
    assert not differing, [tuple(hex(c[i]) for c in codes) for i in differing[:5]]
    assert ours.status == row.status


@pytest.mark.parametrize("name", entries())
def test_traps_are_those_of_the_row(name):
    fmt, count = FORMATS[0], len(operands(name))
    hard = hard_codes(fmt)
    picked = np.random.default_rng(1).permutation(hard)[:12]
    for k, code in enumerate(picked):
        others = (code, picked[k - 1], picked[k - 2])[:count]
        codes = [np.array([c], fmt.code_dtype) for c in others]
        ours, row = (f(name, fmt, codes, traps=True) for f in (of_torch, of_the_row))
        assert ours == row, [hex(int(c[0])) for c in codes]


@pytest.mark.parametrize("name", ["maximum.default", "minimum.default", "clamp.default"])
@pytest.mark.parametrize("rule", ["number", "propagate"])
def test_the_rule_for_nan_is_the_devices(name, rule):
    fmt, count = FORMATS[0], len(operands(name))
    codes = codes_of_one(fmt) if count == 1 else codes_of_two(fmt)
    assert of_torch(name, fmt, codes, max_nan=rule) == of_the_row(name, fmt, codes, max_nan=rule)


def test_every_other_overload_of_these_rows_is_listed():
    listed = {name for names in ELSEWHERE.values() for name in names}
    assert listed <= aten.TABLE.keys()
    assert not listed & set(entries())
    assert len(entries()) > 60


#: Overloads that name no row, and why.
WITHOUT_ROWS = {
    "_to_copy.default": "a cast, which is the device's verb",
    "_amp_foreach_non_finite_check_and_unscale_.default": "ops.updates.scales.unscaled",
    "_amp_update_scale_.default": "a number of the host, as torch computes it",
}


def test_every_overload_names_a_row_or_has_a_reason():
    missing = {name for name, entry in aten.TABLE.items() if not entry.rows}
    assert missing == WITHOUT_ROWS.keys()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("traps", [False, True])
def test_gelu_by_tanh_is_the_other_row(fmt, traps):
    functions = torch.ops.aten.gelu.default, torch.ops.aten.gelu_backward.default
    for codes in (codes_of_one(fmt), codes_of_two(fmt)):
        codes = [c[:1000] for c in codes] if traps else codes
        is_gradient = len(codes) == 2

        def compute(device, *arrays, is_gradient=is_gradient):
            if is_gradient:
                saved = ops.gelu.forward(device, arrays[1])[1]  # torch keeps x alone
                return ops.gelu.pull(0, device, arrays[0], saved)
            return ops.gelu.value(device, *arrays)

        with machine("fp32", target="hypothetical", traps=traps) as session:
            try:
                y = functions[is_gradient](*tensors(codes, fmt), approximate="tanh")
                stored = y.view(torch.int16).numpy().view(np.uint16)
                ours = outcome(stored, fmt, session.device.status_word)
            except FloatingPointError:
                ours = Outcome([], session.device.status_word, True)
        assert ours == of_row(compute, fmt, codes, traps=traps)


QUOTIENTS = {None: ops.divide, "floor": ops.floor_divide, "trunc": ops.trunc_divide}


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("traps", [False, True])
@pytest.mark.parametrize("mode", QUOTIENTS)
def test_quotients_that_are_whole_numbers_are_rows(mode, fmt, traps):
    codes = [c[:200] if traps else c for c in codes_of_two(fmt)]
    x, y = tensors(codes, fmt)
    with machine("fp32", target="hypothetical", traps=traps) as session:
        try:
            q = torch.div(x, y, rounding_mode=mode)
            ours = outcome(q.view(torch.int16).numpy().view(np.uint16), fmt,
                           session.device.status_word)
        except FloatingPointError:
            ours = Outcome([], session.device.status_word, True)
        halves = None if traps else torch.div(x, 2, rounding_mode=mode)
    assert ours == of_row(QUOTIENTS[mode].value, fmt, codes, traps=traps)
    if halves is not None:
        def by_two(device, a):
            return QUOTIENTS[mode].value(device, a, device.from_host(2.0, fmt))

        assert outcome(
            halves.view(torch.int16).numpy().view(np.uint16), fmt, 0
        ).codes == of_row(by_two, fmt, codes[:1]).codes


def test_a_zero_times_the_logarithm_of_a_nan_is_torchs_nan():
    x, y = torch.tensor([0.0, -0.0, 2.0]), torch.tensor([math.nan, -1.0, 0.0])
    for function in (torch.xlogy, torch.special.xlog1py):
        with machine("f32") as session:
            values = function(x, y)
            assert session.status.inv
        assert values.isnan().tolist() == function(x, y).isnan().tolist() == [True, False, False]


#: Files that compare rows of shapes with what torch computes: a row has its name there.
LAWS = [Path(__file__).parents[1] / f"test_law_{subject}.py"
        for subject in ("losses", "moves", "norms", "reductions")]


def test_every_row_that_torch_reaches_has_a_law():
    reached = {row.name for entry in aten.TABLE.values() for row in entry.rows}
    by_element = {aten.TABLE[name].rows[0].name for name in entries()}
    by_shape = set().union(*(rows_in(path.read_text(encoding="utf-8")) for path in LAWS))
    elsewhere = {name for names in ELSEWHERE.values() for name in names}
    others = {row.name for name in elsewhere for row in aten.TABLE[name].rows}
    assert reached - by_element - by_shape <= others | {"gelu"}  # by the test above
