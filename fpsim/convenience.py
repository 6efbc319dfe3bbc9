"""Round, encode and decode numbers without keeping a Context.

>>> import math, fpsim as fp
>>> round_to(math.pi, fp.F143)
3.25
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.context import Context
from fpsim.elementwise.apply import apply
from fpsim.elementwise.codes import from_codes, to_codes
from fpsim.elementwise.inputs import floats
from fpsim.records.formats import Format, ScaleFormat, find_format
from fpsim.records.rounding import RNE, Rounding
from fpsim.records.settings import Settings
from fpsim.state.bits import Replay, check_seed
from fpsim.state.draws import Draw
from fpsim.state.processor import usual_arithmetic

__all__ = ["decode", "encode", "round_to"]


@usual_arithmetic
def round_to(
    x: ArrayLike,
    fmt: Format | str,
    rounding: Rounding | str = RNE,
    *,
    seed: int = 0,
    random: ArrayLike | None = None,
    out: NDArray[Any] | None = None,
    overflow: str | None = None,
    subnormals: str = "keep",
    tininess: str = "after",
    nan: str = "canonical",
    infinite_input: str | None = None,
    divide_by_zero: str = "infinity",
    quiet_nan_raises: bool = False,
) -> Any:
    """x rounded once into a format: a float for a number, carrier values for an array.

    overflow … quiet_nan_raises    policies, as in `fpsim.records.settings.Settings`.

    Shapes    as x.
    Rounding  once; stochastic modes take the bits of operation 0 of `seed`, or the integers
              `random` (0 <= R < 2**bits, one for each element).
    Flags     none are kept; use a Context to see them.

    >>> import fpsim as fp
    >>> round_to([0.1, 70000.0], "binary16", overflow="saturate")
    array([9.9975586e-02, 6.5504000e+04], dtype=float32)
    """
    settings = _settings(
        fmt, rounding, overflow, subnormals, tininess, nan, infinite_input, divide_by_zero,
        quiet_nan_raises,
    )
    values = floats(x, settings.native)
    key, words = check_seed(seed), None
    if random is not None:
        if not settings.rounding.stochastic:
            raise ValueError(f"random= is for stochastic modes; rounding={rounding} has no bits")
        words = Replay([np.asarray(random)]).draw(0, values.shape, settings.random_most)
    bits = Draw(np.uint64(key), np.uint64(0), words)
    result, _ = apply("convert", (values,), settings, out=out, track=False, bits=bits)
    return float(result) if result.ndim == 0 and out is None else result


#: Settings of earlier calls: choices are checked once, and kernels found for them stay with them.
_kept_settings = lru_cache(maxsize=256)(Settings)


def _settings(fmt: Format | str, rounding: Rounding | str, *policies: Any) -> Settings:
    try:
        return _kept_settings(fmt, rounding, *policies)
    except TypeError:  # where that was for want of a hash, these have a sentence of their own
        return Settings(fmt, rounding, *policies)  # type: ignore[arg-type]


@usual_arithmetic
def encode(x: Any, fmt: Format | ScaleFormat | str, rounding: Rounding | str = RNE) -> Any:
    """Code of a number, rounded once: an int for a scalar, an array of codes for an array.

    >>> from fpsim.records.formats import BINARY16, E8M0
    >>> hex(encode(1.0, BINARY16)), hex(encode(0.1, BINARY16)), encode(1.0, E8M0)
    ('0x3c00', '0x2e66', 127)
    """
    fmt = find_format(fmt)
    if isinstance(fmt, ScaleFormat):
        numbers = floats(x)
        if numbers.ndim == 0:
            return fmt.encode(float(numbers))
        scales = [fmt.encode(v) for v in numbers.reshape(-1).tolist()]
        return np.array(scales, np.uint8).reshape(numbers.shape)
    codes = to_codes(Context(fmt, rounding=rounding).array(x).carrier, fmt)
    return int(codes[()]) if np.ndim(x) == 0 else codes


@usual_arithmetic
def decode(code: Any, fmt: Format | ScaleFormat | str) -> Any:
    """Value of a code: a float for an int, a carrier array for an array.

    >>> from fpsim.records.formats import BINARY16, E2M1FN
    >>> decode(0x7BFF, BINARY16), decode(0xF, E2M1FN)
    (65504.0, -6.0)
    """
    fmt = find_format(fmt)
    if isinstance(fmt, ScaleFormat):
        if np.ndim(code) == 0:
            return fmt.decode(np.asarray(code).item())
        return np.array([fmt.decode(k) for k in np.ravel(code)]).reshape(np.shape(code))
    values = from_codes(code, fmt)
    return float(values[()]) if np.ndim(code) == 0 else values
