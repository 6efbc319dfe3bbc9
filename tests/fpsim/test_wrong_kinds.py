"""Every public function of fpsim, with one argument of a wrong kind after the other (law)."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import fpsim as fp
from fpsim import linalg
from tests.wrong_kinds import arguments_of, defects

HALF = fp.Context(fp.BINARY16)
MATRIX, VECTOR = HALF.array([[1.0, 2.0], [3.0, 4.0]]), HALF.array([1.0, 2.0])
IMAGES, KERNELS = HALF.array(np.ones((1, 4, 4, 2))), HALF.array(np.ones((3, 3, 2, 2)))
UNIT = "V100_F16_F32"
UNIT_MATRIX = HALF.array(np.eye(2))

FUNCTIONS: dict[str, tuple[Any, dict[str, Any]]] = {
    "Context": (fp.Context, arguments_of(fp.Context, format=fp.BINARY16)),
    "Format.custom": (
        fp.Format.custom, arguments_of(fp.Format.custom, exponent_bits=5, precision=11)
    ),
    "SR": (fp.SR, arguments_of(fp.SR, bits=8)),
    "find_format": (fp.find_format, {"name": "binary16"}),
    "find_rounding": (fp.find_rounding, {"rounding": "RNE"}),
    "round_to": (fp.round_to, arguments_of(fp.round_to, x=[1.0], fmt=fp.BINARY16)),
    "encode": (fp.encode, {"x": 1.0, "fmt": fp.BINARY16, "rounding": fp.RNE}),
    "decode": (fp.decode, {"code": 1, "fmt": fp.BINARY16}),
    "encode a scale": (fp.encode, {"x": 1.0, "fmt": fp.E8M0}),
    "decode a scale": (fp.decode, {"code": 1, "fmt": fp.E8M0}),
    "Philox": (fp.Philox, {"seed": 1}),
    "Xoroshiro128aox": (fp.Xoroshiro128aox, {"seed": 1, "state": (1, 2)}),
    "Replay": (fp.Replay, {"arrays": [[1]]}),
    "Core.share": (HALF.replace().core.share, {"other": HALF.core}),
    "Array": (fp.Array, {"carrier": np.float32([1]), "context": HALF}),
}

LINALG: dict[str, dict[str, Any]] = {
    "sum": {"x": MATRIX}, "mean": {"x": MATRIX}, "dot": {"x": VECTOR, "y": VECTOR},
    "rounded_matmul": {"a": MATRIX, "b": MATRIX},
    "matmul": {"a": MATRIX, "b": MATRIX, "unit": UNIT},
    "k_split": {"a": MATRIX, "b": MATRIX, "unit": UNIT, "parts": 2},
    "conv2d": {"x": IMAGES, "w": KERNELS, "unit": UNIT},
    "conv2d_input_gradient": {
        "gradient": IMAGES, "w": KERNELS, "unit": UNIT, "shape": IMAGES.shape
    },
    "conv2d_weight_gradient": {
        "x": IMAGES, "gradient": IMAGES, "unit": UNIT, "shape": KERNELS.shape
    },
    "lu": {"a": MATRIX}, "qr": {"a": MATRIX}, "cholesky": {"a": UNIT_MATRIX},
    "inv": {"a": MATRIX}, "norm": {"x": MATRIX}, "cond": {"a": MATRIX},
    "solve": {"a": MATRIX, "b": VECTOR}, "solve_triangular": {"a": MATRIX, "b": VECTOR},
    "integer_matmul": {"a": np.int8([[1]]), "b": np.int8([[2]])},
    "gmres": {"a": MATRIX, "b": VECTOR, "factors": linalg.lu(MATRIX)},
    "refine": {
        "A": MATRIX, "b": VECTOR, "factor": HALF, "work": "binary32", "residual": fp.BINARY64
    },
}

#: Methods of contexts whose arguments are no Arrays.
MAKERS: dict[str, dict[str, Any]] = {
    "array": {"values": [1.0]}, "decimal": {"text": "1"}, "zeros": {"shape": 2},
    "ones": {"shape": 2}, "full": {"shape": 2, "value": 1},
    "arange": {"start": 0, "stop": 2, "step": 1},
    "linspace": {"start": 0, "stop": 1, "num": 3, "endpoint": True},
    "unpack": {"packed": np.float16([1])}, "wrap": {"values": np.float32([1]), "copy": True},
    "iterate": {"step": lambda x: x * 0.5, "x": VECTOR, "n": 3, "watch": 1},
    "spawn": {"k": 1}, "in_format": {"fmt": fp.BFLOAT16},
    "power": {"x": MATRIX, "n": 2}, "to_integers": {"x": MATRIX, "dtype": "int8"},
    "dot": {"x": VECTOR, "y": VECTOR, "fused": False, "kahan": False}, "constant": {"value": 1.0},
    "matmul": {"a": MATRIX, "b": MATRIX}, "k_split": LINALG["k_split"], "conv2d": LINALG["conv2d"],
    "quantize": {
        "x": np.ones((2, 32), np.float32), "block": "mxfp8", "axis": -1, "rounding": "RNE",
        "transform": "h32", "flags": True,
    },
}

ARRAYS = {"x": MATRIX, "y": MATRIX, "z": MATRIX, "a": MATRIX, "b": MATRIX}


def _operations() -> list[str]:
    names = [n for n in dir(fp.Context) if not n.startswith("_")]
    return [n for n in names if inspect.isfunction(inspect.getattr_static(fp.Context, n))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_constructors(name):
    function, valid = FUNCTIONS[name]
    assert list(defects(function, valid)) == []


@pytest.mark.parametrize("name", _operations())
def test_methods_of_a_context(name):
    method = getattr(HALF.replace(), name)
    parameters = inspect.signature(method).parameters
    valid = MAKERS.get(name)
    if valid is None:
        valid = arguments_of(method, **{k: v for k, v in ARRAYS.items() if k in parameters})
    missing = [
        p.name for p in parameters.values()
        if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in valid
    ]
    assert not missing, "a new method: give it valid arguments in MAKERS"
    assert list(defects(method, valid)) == []


#: What functions return.
RESULTS = {"LU", "Refinement", "Solution"}


@pytest.mark.parametrize("name", [name for name in linalg.__all__ if name not in RESULTS])
def test_linear_algebra(name):
    function = getattr(linalg, name)
    assert list(defects(function, arguments_of(function, **LINALG[name]))) == []


def test_an_error_of_the_inside_is_a_defect():
    def careless(x: Any) -> Any:
        return x.shape[0] // len(x)

    defects_found = list(defects(careless, {"x": np.ones(2)}))
    assert any("AttributeError" in line for line in defects_found)
    assert any(line.startswith("x=None") for line in defects_found)
