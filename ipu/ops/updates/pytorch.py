"""torch's updates, as torch.optim computes them one tensor after the other.

Options have torch's names. Each operation computes in the widest format of its operands; what
torch writes in place is rounded once more where its memory has another format. Numbers that torch
computes as Python does (corrections of averages, rates that decay) are binary64 of the host, and
become constants.

Source    PyTorch 2.13, torch/optim: `_single_tensor_…` of each file; the forms of lists and of one
          kernel are these operations in another grouping.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpsim.array import Array
from fpsim.records.formats import BINARY32, Format
from ipu.ops.arithmetic import (
    absolute,
    add,
    addcdiv,
    addcmul,
    divide,
    lerp,
    multiply,
    reciprocal,
    scaled_sum,
    sqrt,
    subtract,
)
from ipu.ops.bounds import clamp, maximum
from ipu.ops.primitive import Primitive
from ipu.ops.updates.row import Slots, Updated, UpdateRow, Verbs, widest

__all__ = ["ROWS"]


class TorchVerbs(Verbs):
    """torch's operations on arrays; a Python number is a constant of the operation's format."""

    def _format(self, *operands: Array) -> Format:
        return self.around.format or widest(*(x.format for x in operands))

    def _read(self, operands: tuple[Any, ...]) -> tuple[list[Any], Format]:
        """Operands in one format: each is cast where it is read, as often as it is."""
        fmt = self._format(*(x for x in operands if isinstance(x, Array)))
        cast = self.device.cast
        read = [cast(x, fmt) if isinstance(x, Array) else self.constant(x, fmt) for x in operands]
        return read, fmt

    def _watched(self, result: Array) -> Array:
        if self.around.watch is not None:
            self.around.watch(result)
        return result

    def of(self, row: Primitive, *operands: Any) -> Array:
        """A row of the table."""
        return self._watched(row.value(self.device, *self._read(operands)[0]))

    def add(self, x: Array, y: Any, alpha: float = 1) -> Array:
        """x + alpha · y."""
        read, fmt = self._read((x, y))
        if alpha == 1:
            return self._watched(add.value(self.device, *read))
        factor = self.constant(alpha, fmt)
        return self._watched(scaled_sum.value(self.device, *read, factor=factor))

    def combine(self, row: Primitive, x: Array, y: Array, z: Array, value: float = 1) -> Array:
        """x + value · (y · z), or of the quotient."""
        read, fmt = self._read((x, y, z))
        factor = 1.0 if value == 1 else self.constant(value, fmt)
        return self._watched(row.value(self.device, *read, factor=factor))

    def clamp(self, x: Array, low: float, high: float) -> Array:
        """x between two numbers."""
        limits = [self.constant(limit, x.format) for limit in (low, high)]
        return self._watched(clamp.value(self.device, x, low=limits[0], high=limits[1]))

    def where(self, mask: Any, number: float, x: Array) -> Array:
        """x with a number, to nearest, in the places of a mask."""
        fmt = self._format(x)
        constant = self.device.from_host(np.float32(number), fmt)
        return self._watched(x.like(np.where(mask, constant.carrier, x.carrier)))

    def into(self, memory: Array, result: Array) -> Array:
        """A result as the memory of another array holds it."""
        if result.format is memory.format or result.format == memory.format:
            return result
        return self._watched(self.device.cast(result, memory.format))

    # Steps that equations share -----------------------------------------------------------------

    def single(self, row: Primitive, x: Array, number: float) -> Array:
        """A row of a single number beside the variable, in the format of that."""
        return self._watched(row.value(self.device, x, self.constant(number, x.format)))

    def count(self, step: Array) -> tuple[Array, float]:
        """The counter of steps after this one, and its value."""
        after = self.single(add, step, 1)
        return after, float(after.carrier)

    def gradient(self, w: Array, g: Array, weight_decay: float, maximize: bool) -> Array:
        """The gradient to go down by."""
        if maximize:
            g = g.like(np.asarray(-g.carrier))
        return self.add(g, w, weight_decay) if weight_decay != 0 else g

    def times(self, memory: Array, factor: float) -> Array:
        """memory · factor, in place."""
        return self.into(memory, self.of(multiply, memory, factor))

    def toward(self, memory: Array, g: Array, share: float) -> Array:
        """memory + (g - memory) · share, in place."""
        return self.into(memory, self.of(lerp, memory, g, share))

    def mean_square(self, memory: Array, x: Array, share: float) -> Array:
        """memory · share + (1 - share) · x², in place."""
        return self.plus_square(self.times(memory, share), x, 1 - share)

    def plus_square(self, memory: Array, x: Array, value: float) -> Array:
        """memory + value · x², in place."""
        return self.into(memory, self.combine(addcmul, memory, x, x, value))

    def shifted(self, x: Array, number: float) -> Array:
        """x + a number, as eps is added."""
        return self.into(x, self.add(x, number))

    def move(self, w: Array, step: Array, rate: float) -> Array:
        """w + rate · step, in place."""
        return self._moved("add", w, (step,), rate, self.add(w, step, rate))

    def move_by(self, row: Primitive, w: Array, y: Array, z: Array, value: float) -> Array:
        """w + value · (y · z), or of the quotient, in place."""
        return self._moved(row.name, w, (y, z), value, self.combine(row, w, y, z, value))

    def _moved(
        self, verb: str, w: Array, operands: tuple[Array, ...], factor: float, result: Array
    ) -> Array:
        after = self.into(w, result)
        if self.around.moved is not None:
            self.around.moved(verb, w, operands, factor, after)
        return after


def _sgd(
    do: TorchVerbs, w: Array, g: Array, slots: Slots, *, lr: float, momentum: float,
    dampening: float, weight_decay: float, nesterov: bool, maximize: bool,
) -> Updated:
    g = do.gradient(w, g, weight_decay, maximize)
    (buffer,) = slots
    if momentum != 0:
        if buffer is None:
            buffer = g
        else:
            buffer = do.times(buffer, momentum)
            buffer = do.into(buffer, do.add(buffer, g, 1 - dampening))
        g = do.add(g, buffer, momentum) if nesterov else buffer
    return Updated(do.move(w, g, -lr), (buffer,))


def _decay(do: TorchVerbs, w: Array, lr: float, weight_decay: float) -> Array:
    """A decay of the variable by itself."""
    return do.times(w, 1 - lr * weight_decay)


def _adam(
    do: TorchVerbs, w: Array, g: Array, slots: Slots, *, lr: float, beta1: float, beta2: float,
    eps: float, weight_decay: float, amsgrad: bool, maximize: bool, decoupled_weight_decay: bool,
) -> Updated:
    mean, square, largest, step = slots
    step, t = do.count(step)
    if weight_decay != 0 and decoupled_weight_decay:
        w, weight_decay = _decay(do, w, lr, weight_decay), 0
    g = do.gradient(w, g, weight_decay, maximize)
    mean = do.toward(mean, g, 1 - beta1)
    square = do.mean_square(square, g, beta2)
    left1, left2 = 1 - beta1**t, 1 - beta2**t
    if amsgrad:
        largest = do.into(largest, do.of(maximum, largest, square))
    root = do.of(sqrt, largest if amsgrad else square)
    divisor = do.shifted(do.of(divide, root, left2**0.5), eps)
    w = do.move_by(addcdiv, w, mean, divisor, -(lr / left1))
    return Updated(w, (mean, square, largest, step))


def _adagrad(
    do: TorchVerbs, w: Array, g: Array, slots: Slots, *, lr: float, lr_decay: float, eps: float,
    weight_decay: float, maximize: bool,
) -> Updated:
    total, step = slots
    step, t = do.count(step)
    g = do.gradient(w, g, weight_decay, maximize)
    total = do.plus_square(total, g, 1)
    root = do.shifted(do.of(sqrt, total), eps)
    w = do.move_by(addcdiv, w, g, root, -(lr / (1 + (t - 1) * lr_decay)))
    return Updated(w, (total, step))


def _rmsprop(
    do: TorchVerbs, w: Array, g: Array, slots: Slots, *, lr: float, alpha: float, eps: float,
    weight_decay: float, momentum: float, centered: bool, maximize: bool,
) -> Updated:
    square, mean, buffer, step = slots
    step, _ = do.count(step)
    g = do.gradient(w, g, weight_decay, maximize)
    square = do.mean_square(square, g, alpha)
    spread = square
    if centered:
        mean = do.toward(mean, g, 1 - alpha)
        spread = do.combine(addcmul, square, mean, mean, -1)
    root = do.shifted(do.of(sqrt, spread), eps)
    if momentum > 0:
        buffer = do.times(buffer, momentum)
        buffer = do.into(buffer, do.combine(addcdiv, buffer, g, root))
        w = do.move(w, buffer, -lr)
    else:
        w = do.move_by(addcdiv, w, g, root, -lr)
    return Updated(w, (square, mean, buffer, step))


def _adadelta(
    do: TorchVerbs, w: Array, g: Array, slots: Slots, *, lr: float, rho: float, eps: float,
    weight_decay: float, maximize: bool,
) -> Updated:
    square, moves, step = slots
    step, _ = do.count(step)
    g = do.gradient(w, g, weight_decay, maximize)
    square = do.mean_square(square, g, rho)
    divisor, delta = (do.of(sqrt, do.add(x, eps)) for x in (square, moves))
    for row, other in ((divide, divisor), (multiply, g)):
        delta = do.into(delta, do.of(row, delta, other))
    moves = do.mean_square(moves, delta, rho)
    return Updated(do.move(w, delta, -lr), (square, moves, step))


def _adamax(
    do: TorchVerbs, w: Array, g: Array, slots: Slots, *, lr: float, beta1: float, beta2: float,
    eps: float, weight_decay: float, maximize: bool,
) -> Updated:
    mean, largest, step = slots
    step, t = do.count(step)
    g = do.gradient(w, g, weight_decay, maximize)
    mean = do.toward(mean, g, 1 - beta1)
    largest = do.times(largest, beta2)
    size = do.shifted(absolute.value(do.device, g), eps)
    largest = do.into(largest, do.of(maximum, largest, size))
    w = do.move_by(addcdiv, w, mean, largest, -(lr / (1 - beta1**t)))
    return Updated(w, (mean, largest, step))


def _nadam(
    do: TorchVerbs, w: Array, g: Array, slots: Slots, *, lr: float, beta1: float, beta2: float,
    eps: float, weight_decay: float, momentum_decay: float, decoupled_weight_decay: bool,
    maximize: bool,
) -> Updated:
    mean, square, product, step = slots
    step, t = do.count(step)
    if weight_decay != 0 and decoupled_weight_decay:
        w, weight_decay = _decay(do, w, lr, weight_decay), 0
    g = do.gradient(w, g, weight_decay, maximize)
    mu, following = (
        beta1 * (1.0 - 0.5 * (0.96 ** (n * momentum_decay))) for n in (t, t + 1)
    )
    product = do.single(multiply, product, mu)
    mean = do.toward(mean, g, 1 - beta1)
    square = do.mean_square(square, g, beta2)
    divisor = do.shifted(do.of(sqrt, do.of(divide, square, 1 - beta2**t)), eps)
    so_far = float(product.carrier)
    w = do.move_by(addcdiv, w, g, divisor, -lr * (1.0 - mu) / (1.0 - so_far))
    w = do.move_by(addcdiv, w, mean, divisor, (-lr * following) / (1.0 - so_far * following))
    return Updated(w, (mean, square, product, step))


def _radam(
    do: TorchVerbs, w: Array, g: Array, slots: Slots, *, lr: float, beta1: float, beta2: float,
    eps: float, weight_decay: float, decoupled_weight_decay: bool, maximize: bool,
) -> Updated:
    mean, square, step = slots
    step, t = do.count(step)
    if weight_decay != 0 and decoupled_weight_decay:
        w, weight_decay = _decay(do, w, lr, weight_decay), 0
    g = do.gradient(w, g, weight_decay, maximize)
    mean = do.toward(mean, g, 1 - beta1)
    square = do.mean_square(square, g, beta2)
    left2 = 1 - beta2**t
    change = do.of(multiply, do.of(divide, mean, 1 - beta1**t), lr)
    longest = 2 / (1 - beta2) - 1
    length = longest - 2 * t * (beta2**t) / left2
    if length > 5.0:
        root = do.shifted(do.of(sqrt, square), eps)
        adaptive = do.of(multiply, do.of(reciprocal, root), left2**0.5)
        change = do.of(multiply, do.of(multiply, change, adaptive), _rectified(length, longest))
    return Updated(do.move(w, change, -1.0), (mean, square, step))


def _rectified(length: float, longest: float) -> float:
    """The rectification of the variance, for lengths of the average in use and at the end."""
    part, whole = (length - 4) * (length - 2) * longest, (longest - 4) * (longest - 2) * length
    return float((part / whole) ** 0.5)


def _rprop(
    do: TorchVerbs, w: Array, g: Array, slots: Slots, *, step_size_min: float, step_size_max: float,
    etaminus: float, etaplus: float, maximize: bool,
) -> Updated:
    previous, size, step = slots
    step, _ = do.count(step)
    g = do.gradient(w, g, 0, maximize)
    factor = _sign(do.of(multiply, g, previous))
    for compare, number in ((np.greater, etaplus), (np.less, etaminus), (np.equal, 1)):
        factor = do.where(compare(factor.carrier, 0), number, factor)
    size = do.into(size, do.of(multiply, size, factor))
    size = do.clamp(size, step_size_min, step_size_max)
    shrinks = factor.carrier == do.constant(etaminus, factor.format).carrier
    g = do.where(shrinks, 0, g)
    w = do.move_by(addcmul, w, _sign(g), size, -1)
    return Updated(w, (do.into(previous, g), size, step))


def _sign(x: Array) -> Array:
    """-1, 0 or 1, of NaN 0."""
    above, below = x.carrier > 0, x.carrier < 0
    return x.like(np.asarray(np.subtract(above, below, dtype=x.carrier.dtype)))


def _asgd(
    do: TorchVerbs, w: Array, g: Array, slots: Slots, *, lambd: float, lr: float, t0: float,
    alpha: float, weight_decay: float, maximize: bool,
) -> Updated:
    average, mu, eta, step = slots
    step, t = do.count(step)
    g = do.gradient(w, g, weight_decay, maximize)
    rate = float(eta.carrier)
    w = do.move(do.times(w, 1 - lambd * rate), g, -rate)
    if float(mu.carrier) != 1:
        gap = do.of(subtract, w, average)
        gap = do.into(gap, do.of(multiply, gap, mu))
        average = do.into(average, do.add(average, gap))
    else:
        average = do.into(average, w)
    rate, share = lr / ((1 + lambd * lr * t) ** alpha), 1 / max(1, t - t0)
    mu, eta = (do.device.from_host(np.float32(x), BINARY32) for x in (share, rate))
    return Updated(w, (average, mu, eta, step))


def _row(
    name: str, equation: Callable[..., Updated], slots: tuple[str, ...], rounding: str, file: str
) -> UpdateRow:
    source = f"PyTorch 2.13, torch/optim/{file}.py, _single_tensor_{file}"
    return UpdateRow(f"torch {name}", equation, slots, rounding, source, TorchVerbs)


_MEANS = "m + (g - m)·(1 - b1); v·b2 + g²·(1 - b2)"

#: torch's equations.
ROWS = (
    _row("sgd", _sgd, ("momentum_buffer",), "g + w·decay; v·momentum + g·(1 - dampening); with "
         "Nesterov g + v·momentum; w + it·(-lr)", "sgd"),
    _row("adam", _adam, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"), f"{_MEANS}; √v / "
         "√(1 - b2^t) + eps; w + m / it·(-lr / (1 - b1^t)); decoupled: w·(1 - lr·decay) first",
         "adam"),
    _row("adagrad", _adagrad, ("sum", "step"), "s + g²; √s + eps; w + g / it·(-rate)", "adagrad"),
    _row("rmsprop", _rmsprop, ("square_avg", "grad_avg", "momentum_buffer", "step"),
         "v·a + g²·(1 - a); √v + eps, centred √(v + m²·(-1)); w + g / it·(-lr), with momentum "
         "u·momentum + g / it, w + u·(-lr)", "rmsprop"),
    _row("adadelta", _adadelta, ("square_avg", "acc_delta", "step"), "v·ρ + g²·(1 - ρ); √(v + eps);"
         " √(u + eps) / it·g; u·ρ + it²·(1 - ρ); w + it·(-lr)", "adadelta"),
    _row("adamax", _adamax, ("exp_avg", "exp_inf", "step"), "m + (g - m)·(1 - b1); max(u·b2, |g| + "
         "eps); w + m / u·(-lr / (1 - b1^t))", "adamax"),
    _row("nadam", _nadam, ("exp_avg", "exp_avg_sq", "mu_product", "step"), f"{_MEANS}; "
         "√(v / (1 - b2^t)) + eps; w + g / it·a; w + m / it·b", "nadam"),
    _row("radam", _radam, ("exp_avg", "exp_avg_sq", "step"), f"{_MEANS}; m / (1 - b1^t)·lr; times "
         "1 / (√v + eps)·√(1 - b2^t), times the rectification; w + it·(-1)", "radam"),
    _row("rprop", _rprop, ("prev", "step_size", "step"), "g·prev; size·factor; w + sign(g)·size·"
         "(-1)", "rprop"),
    _row("asgd", _asgd, ("ax", "mu", "eta", "step"), "w·(1 - λ·η); w + g·(-η); a + (w - a)·μ",
         "asgd"),
)
