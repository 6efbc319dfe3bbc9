"""Numbers in equal steps, as native floats that every later rounding treats as the number itself.

Start, stop and step are exact numbers, and so is each number of the progression until it is
rounded to odd at 53 digits (binary64 itself: to nearest). They are integers over one denominator;
of that only the odd part needs a division, whose rest is carried from number to number.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fpsim.elementwise import integers
from fpsim.elementwise.sizes import check_size, checked_count
from fpsim.kernels.elementwise.progressions import equal_steps
from fpsim.records.types import Carrier
from fpsim.state.processor import usual_arithmetic

__all__ = ["progression"]

#: A number of a progression in binary64 and, after its rounding, in a carrier.
_BYTES = 12


def progression(
    start: Any, stop: Any, *, step: Any = None, num: Any = 0, endpoint: bool = True,
    native: bool = False,
) -> Carrier:
    """start + k*step before stop, or num numbers in equal steps to stop.

    Rounding  each once to 53 digits, to odd, or to nearest if `native`.
    Raises    TypeError for what is no number; ValueError for infinity, NaN, a step of zero and more
              elements than the machine's memory holds.

    >>> progression(0, 1, step=0.5).tolist(), progression(0, 1, num=3).tolist()
    ([0.0, 0.5], [0.0, 0.5, 1.0])
    """
    first, end = _fraction("start", start), _fraction("stop", stop)
    if step is None:
        n = checked_count("num", num)
        check_size("num", num, n, _BYTES)
        width = (end - first) / max(1, n - 1 if endpoint else n)
    else:
        width = _fraction("step", step)
        if width == 0:
            raise ValueError("step=0 reaches no stop; use another step")
        n = max(0, -((first - end) // width))
        check_size("stop", stop, n, _BYTES)
    return _numbers(first, width, n, native)


def _fraction(name: str, value: Any) -> Fraction:
    if not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name}={value!r} is no number; give an int or a float")
    if value - value != 0:
        raise ValueError(f"{name}={value} is not finite; give a finite number")
    return Fraction(int(value)) if isinstance(value, (int, np.integer)) else Fraction(float(value))


@usual_arithmetic
def _numbers(first: Fraction, width: Fraction, n: int, native: bool) -> NDArray[np.float64]:
    """first + k * width for k < n."""
    divisor = math.lcm(first.denominator, width.denominator)
    shift = (divisor & -divisor).bit_length() - 1
    odd = divisor >> shift
    at, by = int(first * divisor), int(width * divisor) if n > 1 else 0
    if odd == 1 and shift <= 1000 and max(abs(at), abs(at + n * by)).bit_length() < 63:
        whole = np.arange(n, dtype=np.int64) * by + at
        exact = whole.astype(np.float64) if native else integers.to_binary64(whole)
        return np.ldexp(exact, -shift)
    # So many digits behind the point that a number has 53 before its rest.
    digits = 0 if odd == 1 else 56 + odd.bit_length()
    number, rest = divmod(at << digits, odd)
    step, rest_step = divmod(by << digits, odd)
    size = (abs(number) + (n + 1) * (abs(step) + 1)).bit_length() // 32 + 2
    out = np.empty(n, np.float64)
    equal_steps(
        _limbs(number, size), _limbs(step, size), rest, rest_step, odd, -shift - digits, native, out
    )
    return out


def _limbs(number: int, size: int) -> NDArray[np.int64]:
    """A number in two's complement, `size` limbs of 32 bits."""
    data = number.to_bytes(4 * size, "little", signed=True)
    return np.frombuffer(data, "<u4").astype(np.int64)
