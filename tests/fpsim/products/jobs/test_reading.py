"""Operands as kernels read them; law (arrays that cannot be written meet the same kernels)."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

import fpsim as fp
import ipu.machine.units  # noqa: F401  (registers the units of the IPU)
from fpsim.linalg import matmul
from fpsim.products.by_unit import dispatch
from fpsim.products.by_unit.general import run_general
from fpsim.products.jobs.reading import to_read


def test_the_memory_stays_the_same_as_long_as_it_is_read():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)[:, 1:]
    assert to_read(values) is values
    values.flags.writeable = False
    address, strides, others = values.ctypes.data, values.strides, values.copy()
    result = to_read(values)
    del values
    assert (result.ctypes.data, result.strides, result.dtype) == (address, strides, np.float32)
    assert np.array_equal(result, others)
    assert to_read(result) is result


@pytest.mark.parametrize("engine", ["AMP_F16_F32", "general", "separate", "fused", "kahan", "sum"])
@pytest.mark.parametrize("rows", [3, 400])
def test_operands_that_cannot_be_written_meet_the_same_kernels(engine, rows, monkeypatch):
    if engine == "general":
        monkeypatch.setattr(dispatch, "ENGINES", (run_general,))
    half = fp.Context(fp.BINARY16)
    rounded = engine in ("separate", "fused", "kahan")
    context = half if rounded else fp.Context(fp.BINARY32)

    def compute(prepared):
        a, b = (
            fp.Array(prepared(np.ones(shape, np.float32)), half) for shape in ((rows, 80), (80, 17))
        )
        if engine == "sum":
            return context.sum(fp.Array(a.carrier, context), 0).carrier.tobytes()
        if rounded:
            choices = {} if engine == "separate" else {engine: True}
            return context.matmul(a, b, **choices).carrier.tobytes()
        return matmul(a, b, "AMP_F16_F32", context=context).carrier.tobytes()

    def refuse(dispatcher, *arguments):
        raise AssertionError(f"{dispatcher.py_func.__qualname__} has no kernel for these types")

    def frozen(values):
        values.flags.writeable = False
        return values

    expected = compute(np.copy)
    monkeypatch.setattr(Dispatcher, "_compile_for_args", refuse)
    assert compute(frozen) == expected
