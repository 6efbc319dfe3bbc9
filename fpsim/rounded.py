"""Products whose every multiplication and addition is rounded in a context.

Source    docs/semantics.md §2 (places) and §4 (order).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fpsim.arithmetic import Carrier
from fpsim.array import Array
from fpsim.bits import Philox
from fpsim.engine_fused import panels
from fpsim.flags import Flags
from fpsim.formats import BINARY64
from fpsim.kernels.elementwise import FLAGS_EACH, FLAGS_STICKY
from fpsim.kernels.gemm_fused import COLUMNS, ROWS
from fpsim.kernels.gemm_nearest import nearest_matmul
from fpsim.kernels.gemm_rounded import CHAINS, RoundedVariant, rounded_kernel
from fpsim.kernels.sums import LANES, WORDS_GIVEN, WORDS_HALF, WORDS_NONE, WORDS_WHOLE
from fpsim.parallel import run_blocks
from fpsim.plan import exact_width, plan
from fpsim.publish import Marks, checked_target, fold_flags, published, wants_marks
from fpsim.rounding import RNE
from fpsim.settings import Settings

if TYPE_CHECKING:
    from fpsim.context import Context

__all__ = ["dot", "rounded_matmul"]

Words = NDArray[np.uint32]

#: Multiply-adds below which a second thread costs more than it gives.
_SMALLEST = 1 << 16

_NO_WORDS = np.zeros((1, LANES), np.uint32)


def rounded_matmul(
    a: Array, b: Array, *, context: Context | None = None, fused: bool = False,
    kahan: bool = False, out: Array | Carrier | None = None,
) -> Array:  # fmt: skip
    """The product a @ b with every operation rounded, terms in ascending order.

    acc = fl(a0 b0), then acc = fl(acc + fl(ak bk)).

    fused   one rounding per term: acc = fl(acc + ak bk).
    kahan   a compensated sum of the rounded products.

    Shapes    a (M, K), b (K, N): result (M, N). With K = 0 it is +0.
    Rounding  after every product and every addition, in the context (default: that of a).
    Flags     those of all the operations.
    Source    docs/semantics.md §4.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> row, column = half.array([[1.0, 2.0**-11, 2.0**-11]]), half.array([[1.0]] * 3)
    >>> [float(rounded_matmul(row, column, kahan=k).values[0, 0]) for k in (False, True)]
    [1.0, 1.0009765625]
    """
    context = context or a.context
    if fused and kahan:
        raise ValueError("fused=True and kahan=True exclude each other; choose one")
    if context.format == BINARY64:
        raise TypeError("binary64 is the native reference; use numpy on .values for its products")
    x, y = context.carriers((a, b))
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[0]:
        raise ValueError(
            f"a has shape {x.shape}, b has shape {y.shape}; give matrices (M, K) and (K, N)"
        )
    shape = (x.shape[0], y.shape[1])
    target = checked_target(context, out, shape)
    chain = "fused" if fused else "kahan" if kahan else "separate"
    watched = wants_marks(context)
    values, flags, marks = _run(context, chain, x, y, FLAGS_EACH if watched else FLAGS_STICKY)
    fold_flags(context, "matmul", flags, values, marks if watched else None)
    context.advance(context.settings)
    return published(context, values, target, out)


def dot(
    x: Array, y: Array, *, context: Context | None = None, fused: bool = False, kahan: bool = False
) -> Array:
    """The inner product of two vectors, every operation rounded; see `rounded_matmul`.

    >>> import fpsim as fp
    >>> half = fp.Context(fp.BINARY16)
    >>> float(dot(half.array([1.0, 2.0]), half.array([3.0, 4.0])))
    11.0
    """
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"x has shape {x.shape}, y has shape {y.shape}; give two equal vectors")
    row, column = x.reshape(1, -1), y.reshape(-1, 1)
    return rounded_matmul(row, column, context=context, fused=fused, kahan=kahan).reshape(())


def _run(
    context: Context, chain: str, a: Carrier, b: Carrier, level: int
) -> tuple[Carrier, int, Marks]:
    """Values, flags, and the flags of each element where `level` asks for them."""
    (m, k), n = a.shape, b.shape[1]
    panels = -(-n // LANES)
    out, marks = np.zeros((m, panels * LANES), a.dtype), np.zeros((m, panels * LANES), np.uint8)
    if k == 0 or out.size == 0:
        return out[:, :n].copy(), 0, marks[:, :n]
    wide = np.zeros((k, panels * LANES), a.dtype)
    wide[:, :n] = b
    packed = np.ascontiguousarray(wide.reshape(k, panels, LANES).swapaxes(0, 1))
    a = np.ascontiguousarray(a)
    settings = context.settings
    product, total = (
        plan(name, settings, exact_width(name, settings, a.itemsize))
        for name in ("multiply", "fma" if chain == "fused" else "add")
    )
    words, given = WORDS_NONE, _NO_WORDS
    source = context.source
    if settings.rounding.stochastic:
        words = WORDS_WHOLE if product.whole_words else WORDS_HALF
        if not isinstance(source, Philox):
            words, given = WORDS_GIVEN, _given(context, CHAINS[chain] * k, m, n)
    kernel = rounded_kernel(
        RoundedVariant(
            list(CHAINS).index(chain), product.mode, level, product.flush, product.one_zero, words,
            product.residual,
        )
    )  # fmt: skip
    seed = np.uint64(source.seed if isinstance(source, Philox) else 0)
    number = np.uint64(context.operation)
    nearest = None
    if chain == "separate" and level == FLAGS_STICKY:
        nearest = _nearest(settings, a, b)

    def work(begin: int, end: int) -> int:
        flags: int = kernel(
            a[begin:end], packed, out[begin:end], marks[begin:end], given, product.constants,
            total.constants, begin * n, n, seed, number,
        )  # fmt: skip
        return flags

    smallest = max(1, _SMALLEST // (n * k))
    if nearest is None:
        flags = run_blocks(work, 0, m, smallest, 4)
    else:
        # The first rows tell which flags there are; the fast kernel does not look at them.
        head = min(m, ROWS)
        flags = work(0, head)
        result = out[:, :n].copy()
        if nearest.possible & ~(flags | int(context.flags)):
            flags |= run_blocks(work, head, m, smallest, 4)
        elif m > head:
            nearest(result)
            return result, flags, marks[:, :n]
    return out[:, :n].copy(), flags, marks[:, :n]


class _Nearest(NamedTuple):
    """A product that the kernel for nearest even may run, and the flags it can raise."""

    a: Carrier
    b: Carrier
    precision: int
    emin: int
    possible: int

    def __call__(self, result: Carrier) -> None:
        def work(begin: int, end: int) -> int:
            part = slice(begin * ROWS, end * ROWS)
            return int(
                nearest_matmul(self.a[begin:end], self.b, result[part], self.precision, self.emin)
            )

        run_blocks(work, 0, len(self.a), max(1, _SMALLEST * 16 // self.b.size))


def _nearest(settings: Settings, a: Carrier, b: Carrier) -> _Nearest | None:
    """None where something could be infinite, NaN, overflow, or leave binary32's normal range."""
    fmt, k = settings.format, a.shape[1]
    p = fmt.precision
    if settings.rounding is not RNE or settings.subnormals != "keep":
        return None
    if p > 11 or fmt.carrier != np.float32 or not fmt.has_negative_zero:
        return None
    rows, low_a, _ = panels(a, ROWS, k, flush=False)
    columns, low_b, _ = panels(b.T, COLUMNS, k, flush=False)
    # Each of 2 k roundings makes a magnitude at most 1 + 2**-p times larger.
    with np.errstate(over="ignore", invalid="ignore"):
        most = np.abs(a).max() * np.abs(b).sum(axis=0, dtype=np.float64).max()
        most *= np.exp(2.0 * k * 2.0**-p) * 1.01
    if not most < min(fmt.max, 2.0 ** (100 + p)):
        return None
    last = low_a * low_b * 2.0 ** (2 - 2 * p)
    if last < 2.0**-126:
        return None
    possible = Flags.INEXACT
    if last < fmt.smallest_subnormal:
        possible |= Flags.UNDERFLOW
    return _Nearest(rows, columns, p, fmt.emin, int(possible))


def _given(context: Context, places: int, m: int, n: int) -> Words:
    """The integers R of every place, with room for vectors that reach over the last output."""
    drawn = context.source.draw(context.operation, (places, m, n), context.settings.random_most)
    words = np.zeros((places, m * n + LANES), np.uint32)
    if drawn is not None:
        words[:, : m * n] = drawn.reshape(places, m * n)
    return words
