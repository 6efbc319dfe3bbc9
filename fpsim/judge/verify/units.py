"""Recorded results of matrix units against the engine.

A file is an .npz of binary32 codes: `a` and `b` (rows, K), `c` (rows), and results `d_fp32`,
`d_fp16` (rows), as recorded on the parts; c is rounded to nearest where the partials are narrower.
NaN results agree with any NaN.

Source    MATLAB-tensor-core, model_validation, commit b12b5a7 (BSD-2-Clause).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fpsim.array import Array
from fpsim.context import Context
from fpsim.elementwise.codes import is_held
from fpsim.judge.verify.report import KEPT, VerificationReport
from fpsim.linalg import matmul
from fpsim.records.formats import BINARY16, BINARY32, Format
from fpsim.records.units import MatrixUnit, find_unit
from fpsim.state.files import read_arrays

__all__ = ["Recorded", "read", "verify"]

_RESULTS = {"fp32": BINARY32, "fp16": BINARY16}
Codes = NDArray[np.uint32]


@dataclass(frozen=True)
class Recorded:
    """Operands and results of one file, as binary32 codes."""

    name: str
    a: Codes
    b: Codes
    c: Codes
    results: dict[str, Codes]


def read(path: str | Path) -> Recorded:
    """A file of recorded results.

    Raises    ValueError that says what is damaged, missing or of the wrong shape.
    """
    name = str(path)
    try:
        arrays = read_arrays(Path(path))
    except (OSError, ValueError) as error:
        raise ValueError(f"file={name!r} is no .npz of recorded results ({error})") from None
    results = {key: arrays[f"d_{key}"] for key in _RESULTS if f"d_{key}" in arrays}
    missing = [key for key in "abc" if key not in arrays]
    if missing or not results:
        raise ValueError(
            f"file={name!r} holds no {', '.join(missing) or 'results'}; "
            "expected a, b, c and d_fp32 or d_fp16"
        )
    for key, codes in {**arrays, **results}.items():
        if codes.dtype != np.uint32 or codes.shape[:1] != arrays["c"].shape:
            raise ValueError(
                f"file={name!r}: {key} is {codes.dtype} {codes.shape}; expected uint32 codes of "
                f"{arrays['c'].size} rows"
            )
    if arrays["a"].shape != arrays["b"].shape or arrays["a"].ndim != 2:
        raise ValueError(f"file={name!r}: a and b must be matrices (rows, K) of one shape")
    if not arrays["c"].size:
        raise ValueError(f"file={name!r} holds no rows; nothing would be compared")
    return Recorded(name, arrays["a"], arrays["b"], arrays["c"], results)


def verify(
    recorded: Recorded, unit: str | MatrixUnit, result: str | None = None
) -> VerificationReport:
    """Every row through the unit; `result` fp32 or fp16, default that of the unit's partials.

    Raises    ValueError for results the file does not hold, operands the unit does not take.
    """
    unit = find_unit(unit)
    result = result or next((k for k, f in _RESULTS.items() if f == unit.partials), "")
    if result not in recorded.results:
        raise ValueError(
            f"result={result!r} is not in {recorded.name}; it holds {', '.join(recorded.results)}"
        )
    if _RESULTS[result] != unit.partials:
        raise ValueError(f"result={result!r} is not what unit {unit} leaves: {unit.partials}")
    a = _array("a", recorded.a, unit.inputs[0], unit)[:, None, :]
    b = _array("b", recorded.b, unit.inputs[-1], unit)[:, :, None]
    c = Context(unit.partials).array(recorded.c.view(np.float32))[:, None, None]
    product = matmul(a, b, unit, context=Context(unit.partials), accumulator=c)
    got, recorded_codes = product.values[:, 0, 0].astype(np.float32), recorded.results[result]
    wrong = got.view(np.uint32) != recorded_codes
    wrong &= ~(np.isnan(got) & np.isnan(recorded_codes.view(np.float32)))
    label = f"{Path(recorded.name).name} {unit} {result}"
    report = VerificationReport(label, "rows", checked=len(got))
    rows = np.flatnonzero(wrong)
    report.fail(len(rows), (_line(int(i), recorded, got, recorded_codes) for i in rows[:KEPT]))
    return report


def _array(name: str, codes: Codes, fmt: Format, unit: MatrixUnit) -> Array:
    values = codes.view(np.float32)
    if not is_held(values, fmt).all():
        raise ValueError(f"{name} holds values that are not in {fmt}, which unit {unit} takes")
    return Array(values, Context(fmt))


def _line(i: int, recorded: Recorded, got: NDArray[np.float32], recorded_codes: Codes) -> str:
    code = int(got.view(np.uint32)[i])
    return (
        f"row {i}: c {int(recorded.c[i]):08X}, got {code:08X} ({got[i]!s}), "
        f"recorded {int(recorded_codes[i]):08X} ({recorded_codes.view(np.float32)[i]!s})"
    )
