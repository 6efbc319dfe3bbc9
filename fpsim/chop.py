"""What programs written for MATLAB and the Manchester codes need to be ported line by line.

`Chop` is the rounding of plain arrays that chop.m does, with its options under its names and with
what it does at the ends of the range: the magnitudes below the smallest number are first rounded to
t digits and then to {0, smallest}, mode 5 saturates and mode 6 overflows, every zero is +0.

Evidence  DOCUMENTED: the text of chop.m and roundit.m (higham/chop, version with `randfunc`), and
          for `release="2019"` of their versions of 2019. Checked against pychop 0.6.2 where both
          define a result.
Source    Higham & Pranesh, SIAM J. Sci. Comput. 41 (2019) C585.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fpsim.elementwise.sizes import check_size

__all__ = ["Chop", "MatlabRandom", "matlab_rand"]

#: t and emax of chop's formats.
_FORMATS = {
    ("q43", "fp8-e4m3"): (4, 7), ("q52", "fp8-e5m2"): (3, 15), ("h", "half", "fp16"): (11, 15),
    ("b", "bfloat16"): (8, 127), ("s", "single", "fp32"): (24, 127),
    ("d", "double", "fp64"): (53, 1023),
}
_BY_NAME = {name: params for names, params in _FORMATS.items() for name in names}
_RELEASES = ("current", "2019")

#: What the generator begins with for seed 0.
_SEED_OF_ZERO = 5489
#: The largest number that randi takes (flintmax - 1).
_LARGEST_WHOLE = 2**53 - 1

#: Fraction digits of binary64, and a power of two that makes its subnormals normal.
_FRACTION, _UP = 52, 2.0**200
#: The place of the digit that binary64 hides.
_HIDDEN = 1 << _FRACTION


def _is_whole(x: object) -> bool:
    return isinstance(x, (int, np.integer)) and not isinstance(x, bool)


class MatlabRandom:
    """MATLAB's uniform random numbers: `rng(seed)` and the calls of `rand` that follow it.

    Source    MATLAB's default generator is the Mersenne twister with 53-bit numbers, as numpy's
              RandomState is; matrices are filled by columns. Checked against the numbers that
              published programs print for their seeds (tests/experiments/published). rng(0) is
              the generator's own seed 5489: MathWorks' page on rand prints what follows it.

    >>> random = MatlabRandom(1)
    >>> random.rand(2, 2).round(4).tolist()
    [[0.417, 0.0001], [0.7203, 0.3023]]
    """

    def __init__(self, seed: int) -> None:
        if not (_is_whole(seed) and 0 <= seed < 2**32):
            raise ValueError(
                f"seed={seed!r} has no stream that is known; use a whole number from 0 to 2**32 - 1"
            )
        self._state = np.random.RandomState(seed or _SEED_OF_ZERO)

    def rand(self, *shape: int) -> NDArray[np.float64]:
        """Numbers from 0 to 1: rand(n) is a matrix of n by n, rand(m, n) one of m by n.

        Raises    ValueError for sides that are no whole numbers; negative ones are 0, as in MATLAB.
        """
        for side in shape:
            if not _is_whole(side):
                raise ValueError(f"shape={shape} has the side {side!r}; give whole numbers")
        sides = tuple(max(0, int(n)) for n in (shape * 2 if len(shape) == 1 else shape or (1, 1)))
        check_size("shape", shape, math.prod(sides), 8)
        values = self._state.random_sample(int(np.prod(sides)))
        return values.reshape(sides[::-1]).T

    def randi(self, largest: int | Sequence[int], *shape: int) -> NDArray[np.int64]:
        """Whole numbers from 1 to the largest, or from the first to the second of two."""
        ends = (1, largest) if np.ndim(largest) == 0 else tuple(np.ravel(largest).tolist())
        if len(ends) != 2 or not all(map(_is_whole, ends)) or not ends[0] <= ends[1]:
            raise ValueError(
                f"largest={largest!r} is no range; give a whole number from 1 on, or two in order"
            )
        if max(map(abs, ends)) > _LARGEST_WHOLE:
            raise ValueError(f"largest={largest!r} is beyond 2**53 - 1, where MATLAB's randi ends")
        count = float(ends[1]) - float(ends[0]) + 1
        steps: NDArray[np.int64] = np.floor(count * self.rand(*shape)).astype(np.int64)
        return steps + int(ends[0])

    def randn(self, *shape: int) -> NDArray[np.float64]:
        """Refused: MATLAB's normal numbers come from a ziggurat whose tables are not published."""
        raise NotImplementedError(
            f"randn{shape} is not offered: MATLAB's stream of normal numbers is not known here; "
            "save the matrix in MATLAB and load it (scipy.io.loadmat)"
        )


def matlab_rand(seed: int, *shape: int) -> NDArray[np.float64]:
    """What `rng(seed); rand(shape)` gives in MATLAB; `MatlabRandom` goes on where it ends.

    >>> matlab_rand(1, 3, 1).round(4).ravel().tolist()
    [0.417, 0.7203, 0.0001]
    """
    return MatlabRandom(seed).rand(*shape)


def _digits_and_exponent(
    format: str, params: tuple[int, int] | None, round: int
) -> tuple[int, int]:
    """t and emax of a format by its name, or of c by its params."""
    if format in ("c", "custom") and params is not None:
        most = 25 if round == 1 else _FRACTION
        pair = tuple(params) if isinstance(params, (tuple, list)) else ()
        whole = len(pair) == 2 and all(map(_is_whole, pair))
        if not (whole and 2 <= pair[0] <= most and 1 <= pair[1] <= 1023):
            raise ValueError(
                f"params={params!r}; chop takes (t, emax), whole numbers, t from 2 to {most}, emax "
                "from 1 to 1023"
            )
        return int(pair[0]), int(pair[1])
    if not isinstance(format, str) or format not in _BY_NAME:
        names = ", ".join(_BY_NAME)
        raise ValueError(f"format={format!r} is not known; use {names}, or c with params=")
    if params is not None:
        raise ValueError(f"params={params!r} is for format='c', got {format!r}; leave one of them")
    return _BY_NAME[format]


def _array_of(x: ArrayLike) -> NDArray[Any]:
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError("x is a masked array, whose mask would be lost; give x.filled(number)")
    try:
        return np.asarray(x)
    except ValueError as error:
        raise ValueError(f"x is no array of numbers ({error}); give rows of equal length") from None


class Chop:
    """chop.m's rounding of plain arrays: `fp16 = Chop(format="h"); y = fp16(x)`.

    format      q43, q52, h, b, s, d or their long names; c with `params` = (t, emax).
    subnormal   1: subnormal numbers; 0: none, the default for bfloat16 alone. Without them the
                results are {0, smallest normal number} by the mode, not by flushing.
    round       1 to nearest, ties to even; 2 up; 3 down; 4 toward zero; 5 stochastic, in
                proportion; 6 stochastic, both sides alike.
    flip, p     1: in each result, with probability p, one bit of the significand is flipped.
    explim      0: exponents have no limits but binary64's.
    randfunc    of a number n: n numbers from 0 to 1, for modes 5 and 6. `random.rand` of a
                `MatlabRandom` where None; elements take them by columns, as in MATLAB, those that
                change alone, subnormal ones last.
    random      the `MatlabRandom` behind randfunc and flips.
    release     "2019": that year's rule, which flushes subnormals and overflows in every mode.

    Rounding    in binary64, also of a float32 array, whose results are float32.
    Raises      ValueError for options that chop.m does not know, and for flips of what is infinite.

    >>> half = Chop(format="h", round=2)
    >>> half([0.1, 1e-9, 7e4]).tolist()
    [0.10003662109375, 5.960464477539063e-08, inf]
    """

    def __init__(
        self, format: str = "h", *, subnormal: int | None = None, round: int = 1, flip: int = 0,
        p: float = 0.5, explim: int = 1, params: tuple[int, int] | None = None,
        randfunc: Callable[[int], ArrayLike] | None = None, random: MatlabRandom | None = None,
        release: str = "current",
    ) -> None:
        t, emax = _digits_and_exponent(format, params, round)
        two = (0, 1)
        choices = (("round", round, range(1, 7)), ("flip", flip, two), ("explim", explim, two))
        subnormal = int(format not in ("b", "bfloat16")) if subnormal is None else subnormal
        for name, value, allowed in (*choices, ("subnormal", subnormal, two)):
            if isinstance(value, float) or value not in allowed:
                raise ValueError(f"{name}={value!r} is not an option of chop; use {list(allowed)}")
        if release not in _RELEASES:
            raise ValueError(f"release={release!r} is not known; use {' or '.join(_RELEASES)}")
        if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
            raise ValueError(f"p={p!r} is no probability; use a number from 0 to 1")
        if randfunc is not None and not callable(randfunc):
            raise TypeError(f"randfunc={randfunc!r} is no function of a number; give one, or None")
        if not isinstance(random, (MatlabRandom, type(None))):
            raise TypeError(f"random={random!r} is no MatlabRandom; give one, or None")
        self.t, self.emax, self.emin = int(t), int(emax), 1 - int(emax)
        self.round, self.subnormal, self.flip, self.p = round, subnormal, flip, p
        self.explim, self.release = explim, release
        self.random = MatlabRandom(1) if random is None else random
        self.randfunc = randfunc or (lambda n: self.random.rand(n, 1))
        self.xmin = 2.0**self.emin
        self.xmins = float(np.ldexp(1.0, self.emin + 1 - self.t))
        self.xmax = float(np.ldexp(2 - 2.0 ** (1 - self.t), self.emax))

    @property
    def u(self) -> float:
        """The unit roundoff, 2**-t."""
        return 2.0**-self.t

    def __call__(self, x: ArrayLike) -> NDArray[Any]:
        """x with each number rounded; shape and type of x, which is float64 or float32."""
        array = _array_of(x)
        if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
            raise TypeError(f"x has dtype {array.dtype}; chop takes real arrays of up to 64 bits")
        flat = array.astype(np.float64).ravel(order="F")
        result = self._rounded(flat)
        if self.explim or self.release == "2019":
            result = self._limited(flat, result)
        shaped = result.reshape(array.shape[::-1]).T
        return shaped.astype(np.float32 if array.dtype == np.float32 else np.float64)

    def _rounded(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """To t digits, or to fewer where a number of the format is subnormal."""
        _, e = np.frexp(np.abs(x))
        below = self.emin - (e - 1)
        limited = bool(self.explim) or self.release == "2019"
        subnormal = limited & (below > 0) & (below < self.t) & (x != 0)
        result, dropped = x.copy(), _FRACTION + 1 - self.t + np.where(subnormal, below, 0)
        for part in (~subnormal, subnormal):
            result[part] = self._integers(x[part], dropped[part])
        return result

    def _integers(self, x: NDArray[np.float64], dropped: NDArray[Any]) -> NDArray[np.float64]:
        """Numbers without so many of their last digits, rounded by the mode: roundit.m."""
        tiny = np.abs(x) < 2.0**-1022
        scale = np.where(tiny, _UP, 1.0)
        bits = (x * scale).view(np.int64)
        one, finite = np.int64(1) << dropped, np.isfinite(x)
        tail = np.where(finite, bits & (one - 1), 0)
        down = bits - tail
        up = self._goes_up(x, bits, tail, one, finite)
        result = np.where(tail != 0, np.where(up, down + one, down), bits).view(np.float64)
        result = result / scale
        return self._flipped(result, x, dropped) if self.flip else result

    def _goes_up(
        self, x: NDArray[Any], bits: NDArray[Any], tail: NDArray[Any], one: NDArray[Any],
        finite: NDArray[Any],
    ) -> NDArray[np.bool_]:
        """Whether the magnitude goes up, where there is a tail."""
        if self.round == 1:
            nearer: NDArray[np.bool_] = 2 * tail > one
            # The one digit left of a smallest number is its hidden bit, and odd.
            odd = ((bits & one) != 0) | (one == _HIDDEN)
            tie_up: NDArray[np.bool_] = (2 * tail == one) & odd
            nearer |= tie_up
            return nearer
        if self.round < 5:
            outward: NDArray[np.bool_] = x > 0 if self.round == 2 else x < 0
            return outward if self.round < 4 else np.zeros(x.shape, np.bool_)
        # What is infinite or NaN has a fraction that is no number, and takes a random one too.
        drawing = np.flatnonzero((tail != 0) | ~finite)
        up = np.zeros(x.shape, np.bool_)
        if drawing.size:
            random = np.asarray(self.randfunc(drawing.size), np.float64).ravel()
            if random.size not in (1, drawing.size):
                raise ValueError(
                    f"randfunc({drawing.size}) gave {random.size} numbers; it has to give as many "
                    "as it is asked for, or one for all"
                )
            up[drawing] = random <= ((tail / one)[drawing] if self.round == 5 else 0.5)
        return up

    def _flipped(
        self, result: NDArray[np.float64], x: NDArray[Any], dropped: NDArray[Any]
    ) -> NDArray[np.float64]:
        """One of the t - 1 last digits flipped, in a share p of the numbers."""
        if not np.isfinite(result).all():
            raise ValueError("x has infinities or NaN, in which chop flips no bit; leave them out")
        hit = self.random.rand(result.size, 1).ravel() <= self.p
        if not hit.any():
            return result
        digits = self.random.randi(self.t - 1, int(hit.sum()), 1).ravel()
        _, e = np.frexp(x)
        place = np.where(x == 0, 1, e) - _FRACTION - 1 + dropped
        whole = np.ldexp(np.abs(result[hit]), -place[hit]).astype(np.int64)
        flipped = np.ldexp((whole ^ (1 << (digits - 1))).astype(np.float64), place[hit])
        result = result.copy()
        result[hit] = np.where(result[hit] < 0, -flipped, flipped)
        return result

    def _limited(self, x: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
        """Results at the ends of the range; x is what was rounded to c."""
        c, beyond = c.copy(), np.abs(x) > self.xmax
        boundary = 2.0**self.emax * (2 - 2.0**-self.t)  # infinite for binary64 itself
        if self.release == "2019" or self.round in (1, 6):
            c = np.where(np.abs(x) >= boundary, np.copysign(np.inf, x), c)
        else:
            stays = self.round >= 4
            outward = (x > 0) if self.round == 2 else (x < 0)
            at_end = np.where(outward & ~np.bool_(stays), np.inf, self.xmax)
            c = np.where(beyond & ~np.isinf(x), np.copysign(at_end, x), c)
        if self.release == "2019":
            least = self.xmin if self.subnormal == 0 else self.xmins
            return np.where(np.abs(x) < least, 0.0, c)
        least = self.xmin if self.subnormal == 0 else self.xmins
        small = np.abs(c) < least
        if self.round == 1:
            goes = np.abs(c) >= least / 2 if self.subnormal == 0 else np.abs(c) > least / 2
        else:
            goes = (c > 0) if self.round == 2 else (c < 0) & (self.round == 3)
        return np.where(small, np.where(goes, np.copysign(least, c), 0.0), c)
