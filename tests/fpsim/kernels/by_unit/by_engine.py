"""Products of a matrix unit by one engine, every output against exact fractions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

import ipu.machine.units.amp  # noqa: F401 (registers units)
from fpsim.elementwise.codes import to_codes
from fpsim.judge.oracle.rounding import canonical_nan, encode, infinity
from fpsim.judge.oracle.units import Ask, one_output
from fpsim.products.by_unit.unit_settings import UnitSettings
from fpsim.products.jobs.job import Job
from fpsim.records.formats import BINARY16
from fpsim.records.settings import Settings
from fpsim.records.types import Carrier, ElementFlags
from fpsim.records.units import MatrixUnit, find_unit

Engine = Callable[[Job], bool]


def job_of(
    unit: str | MatrixUnit, a: ArrayLike, b: ArrayLike, start: ArrayLike = 0.0, **choices: object
) -> Job:
    """a (M, K) times b (K, N) on top of start, into the format of the partials."""
    unit = find_unit(unit)
    settings = UnitSettings(
        unit, unit.inputs[0], unit.inputs[-1], Settings(unit.partials), **choices
    )
    a, b = np.float32(a), np.float32(b)
    values = np.array(np.broadcast_to(np.float32(start), (len(a), b.shape[1])))
    return Job(settings, a, b, values, np.zeros(values.shape, np.uint8))


def multiply(engine: Engine, job: Job) -> tuple[Carrier, ElementFlags]:
    """Values and flags of a job that the engine takes."""
    assert engine(job), "the engine does not take these operands"
    return job.values, job.element_flags


def check(
    engine: Engine, unit: str | MatrixUnit, a: ArrayLike, b: ArrayLike, start: ArrayLike = 0.0,
    **choices: object,
) -> None:
    """Codes and flags of all outputs are those of the definition."""
    job = job_of(unit, a, b, start, **choices)
    s = job.settings
    fmt = s.unit.partials
    x, y = to_codes(job.a, s.a).tolist(), to_codes(job.b, s.b).T.tolist()
    partials = to_codes(job.values, fmt).tolist()
    values, flags = multiply(engine, job)
    codes = to_codes(values, fmt)
    ask = Ask(s.unit, s.a, s.b, s.settings, s.scale, s.policy)
    for i, j in np.ndindex(codes.shape):
        datum, raised = one_output(ask, x[i], y[j], partials[i][j])
        if datum.kind == "nan":
            expected = canonical_nan(fmt)
        elif datum.kind == "infinite":
            expected = infinity(datum.sign, fmt)
        else:
            expected = encode(datum.sign, datum.magnitude, fmt)
        assert (int(codes[i, j]), int(flags[i, j])) == (expected, int(raised)), (i, j)


def at_the_edge(
    unit: str | MatrixUnit, rows: int, columns: int, k: int, seed: int, top: int = 4,
    window: int | None = None,
) -> tuple[Carrier, Carrier, Carrier]:
    """Operands and partials whose addends end at the last digit of the window, and beside it.

    Exponents of products are 0, about half the window, or one digit more or less than the whole of
    it below the largest; significands are 1, all ones, or 1 and a last digit; a fifth are zeros.
    """
    unit = find_unit(unit)
    rng = np.random.default_rng(seed)
    span = unit.window if window is None else window
    low = span // 2

    def numbers(shape: tuple[int, int], p: int, drops: list[int]) -> Carrier:
        ulp = 2.0 ** (1 - p)
        x = rng.choice([1.0, 1.0, 2 - ulp, 1 + ulp], shape) * 2.0 ** (
            top - rng.choice(drops, shape)
        )
        return np.float32(x * rng.choice([-1, 1], shape) * (rng.random(shape) > 0.2))

    p, q = unit.inputs[0].precision, unit.inputs[-1].precision
    a = numbers((rows, k), p, [0, 0, low, low + 1])
    b = numbers((k, columns), q, [0, 0, span - low, span - low - 1])
    c = numbers((rows, columns), unit.partials.precision, [0, 2, -top, span - 1])
    if unit.partials == BINARY16:
        c = np.float32(np.float16(c))
    return a, b, c
