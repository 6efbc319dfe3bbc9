"""Nodes once more in float64, by numpy or by TensorFlow's own kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import add, sub
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from fpsim.kernels.elementwise.binary64 import SQUARED_DIFFERENCE
from fpsim.kernels.elementwise.distances import sum_squares_of
from fpsim.kernels.elementwise.special import ADD, DIVIDE, MULTIPLY, SQRT, SUBTRACT
from fpsim.state.blas import OneBlasThread
from fpsim.state.memory import memory_address
from ipu.frontends.tensorflow.engine.values import FORMATS
from ipu.frontends.tensorflow.kernels.host import eager_kernel, host_function
from ipu.frontends.tensorflow.kernels.table import NodeSite, several

__all__ = ["ElementwiseTwin", "NodeTwin", "reads_carriers", "twin_of", "wide_copy"]

Numbers = NDArray[np.floating]
_WIDE = dict.fromkeys(FORMATS, tf.float64)
_FLOAT64 = tf.float64.as_datatype_enum
#: TensorFlow takes memory as it is that begins at a multiple of so many bytes, and copies other.
_ALIGNMENT = 64
#: Functions of Python.
_FUNCTIONS = ("PyFunc", "EagerPyFunc")
#: They hand their first operand on in the shape of the result.
_RESHAPES = frozenset((
    "EnsureShape", "ExpandDims", "PreventGradient", "Reshape", "Snapshot", "Squeeze",
    "StopGradient",
))
_SUMS = "Sum", "Mean"


def _softmax(x: Numbers) -> Numbers:
    """Along the last axis."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _joined(*operands: Any) -> Numbers:
    """Tensors side by side along the axis that is the last operand."""
    *tensors, axis = operands
    return np.concatenate(tensors, int(axis))


#: Nodes that are functions of numpy, which begin sooner than TensorFlow's kernels.
_BY_NUMPY: dict[str, Callable[..., Numbers]] = {
    "Exp": np.exp, "Rsqrt": lambda x: 1.0 / np.sqrt(x), "Tile": np.tile,
    "RsqrtGrad": lambda root, gradient: gradient * -0.5 * root * root * root,
    "Softmax": _softmax, "ConcatV2": _joined,
}
#: Products of matrices: which attributes say that an operand is turned.
_PRODUCTS = {
    "MatMul": ("transpose_a", "transpose_b"), "BatchMatMulV2": ("adj_x", "adj_y"),
}
#: What a variable holds after a node, of what it held before and of the other operand.
_WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "AssignVariableOp": lambda before, value: value, "AssignAddVariableOp": add,
    "AssignSubVariableOp": sub,
}


def wide_copy(values: Any) -> Numbers:
    """These numbers in float64, in memory of their own."""
    values = np.asarray(values)
    numbers = _room(values.shape)
    np.copyto(numbers, values)
    return numbers


def _room(shape: tuple[int, ...]) -> Numbers:
    """Room for numbers of float64, which TensorFlow takes as they lie in memory."""
    size = 8 * math.prod(shape)
    room = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory_address(room) % _ALIGNMENT
    numbers: Numbers = room[start : start + size].view(np.float64).reshape(shape)
    return numbers


def _tensor_in(numbers: Numbers) -> Any:
    """A tensor of float64 in memory as it is, or in a copy."""
    handle = context.context()
    handle.ensure_initialized()  # a program of graphs alone may not have used it yet
    return ops.EagerTensor(numbers, handle.device_name, _FLOAT64)


def _numbers_of(tensor: Any) -> Any:
    """The numbers of a tensor, which must not be written to: they are its memory."""
    return np.asarray(memoryview(tensor)) if tensor.dtype == tf.float64 else tensor


class ElementwiseTwin:
    """A node that computes element by element, whose shadow needs no local result.

    Of one operand a square is its product with itself, and its negative that with -1.

    >>> twin, far = ElementwiseTwin("Mul"), np.array([1.0, 2.0])
    >>> x = np.float32(far + 0.5)
    >>> shadow, squares = twin.beside(x, x, far, far, x * x)
    >>> shadow.tolist(), squares[0]
    ([1.0, 4.0], 17.0)
    """

    #: By type of node.
    OPERATIONS: ClassVar = {
        "AddV2": ADD, "Sub": SUBTRACT, "Mul": MULTIPLY, "RealDiv": DIVIDE,
        "SquaredDifference": SQUARED_DIFFERENCE, "Sqrt": SQRT, "Square": MULTIPLY,
        "Neg": MULTIPLY, "AssignAddVariableOp": ADD, "AssignSubVariableOp": SUBTRACT,
    }

    def __init__(self, kind: str) -> None:
        self._operation, self._is_negative = self.OPERATIONS[kind], kind == "Neg"

    def partner(self, x: Numbers) -> Numbers:
        """What stands for the second operand where there is none."""
        return np.full(1, -1, x.dtype) if self._is_negative else x

    def beside(
        self, x: Numbers, y: Numbers, far_x: Numbers, far_y: Numbers, result: Numbers
    ) -> tuple[Numbers, list[float]] | None:
        """The shadow of the result, and the sums of squares (`Shadow.added`).

        None where a sum is not finite.
        """
        flat = [_flat(z, result.shape) for z in (x, y, far_x, far_y, result)]
        sums, far = np.empty(4), _room(result.shape)
        sum_squares_of(self._operation, *flat, far.reshape(-1), sums)
        squares: list[float] = sums.tolist()
        return (far, squares) if math.isfinite(sum(squares)) else None


def _flat(x: Numbers, shape: tuple[int, ...]) -> Numbers:
    """An operand in the shape of the result, flat; one number stays one."""
    if x.size != 1 and x.shape != shape:
        x = np.broadcast_to(x, shape)
    return np.ascontiguousarray(x).reshape(-1)


#: The outputs of a node, and what its variables hold afterwards, of its operands: numbers of
#: float64 for arrays and variables, other values as they are. `variables`: which are variables.
NodeTwin = Callable[[Sequence[Any], Sequence[int]], tuple[Sequence[Any], list[Any]]]


def twin_of(site: NodeSite) -> NodeTwin | None:
    """A node in float64.

    None of what the user or the front end computes on the host, which is called once.
    """
    if site.node.marks.get("rule"):
        return _by_rule(site)
    if "kernel" in site.node.marks or site.node.type in _FUNCTIONS:
        return None
    if site.node.type in _WRITES:
        return _by_writing(_WRITES[site.node.type])
    if site.node.type in _RESHAPES and site.node.outputs[0].shape.is_fully_defined():
        return _reshaped(tuple(site.node.outputs[0].shape.as_list()))
    if site.node.type in _SUMS:
        return _by_sum(site)
    if site.node.type == "AddN":
        return _by_additions
    if site.node.type in _BY_NUMPY:
        return _by_numpy(_BY_NUMPY[site.node.type])
    if site.node.type in _PRODUCTS:
        return _by_blas(site)
    if site.node.type == "Split":
        return _by_parts(site.attr("num_split"))
    if site.node.type == "ResourceGather" and not site.attr("batch_dims"):
        return _by_numpy(_gathered)
    return _by_kernel(site)


def reads_carriers(site: NodeSite) -> bool:
    """Whether the twin of a node takes the machine's numbers as they are, in binary32 too."""
    kind = site.node.type
    return kind in _SUMS or kind in ("AddN", "AssignVariableOp")


def _by_writing(write: Callable[[Any, Any], Any]) -> NodeTwin:
    def run(operands: Sequence[Any], variables: Sequence[int]) -> tuple[Sequence[Any], list[Any]]:
        with np.errstate(all="ignore"):
            return (), [write(*operands)]

    return run


def _reshaped(shape: tuple[int, ...]) -> NodeTwin:
    """The same memory in another shape."""

    def run(operands: Sequence[Any], variables: Sequence[int]) -> tuple[Sequence[Any], list[Any]]:
        return [operands[0].reshape(shape)], []

    return run


def _by_sum(site: NodeSite) -> NodeTwin:
    """A sum or mean over axes, by numpy: TensorFlow shares even small ones among its threads."""
    keeps, is_mean = bool(site.attr("keep_dims")), site.node.type == "Mean"

    def run(operands: Sequence[Any], variables: Sequence[int]) -> tuple[Sequence[Any], list[Any]]:
        x, axes = operands[0], tuple(np.ravel(operands[1]).tolist())
        with np.errstate(all="ignore"):
            total = x.sum(axis=axes, keepdims=keeps, dtype=np.float64)
            if is_mean:
                total = total / math.prod([x.shape[axis] for axis in axes])
        return [np.asarray(total)], []

    return run


def _by_numpy(function: Callable[..., Numbers]) -> NodeTwin:
    def run(operands: Sequence[Any], variables: Sequence[int]) -> tuple[Sequence[Any], list[Any]]:
        with np.errstate(all="ignore"):
            return [function(*map(np.asarray, operands))], []

    return run


def _by_additions(
    operands: Sequence[Any], variables: Sequence[int]
) -> tuple[Sequence[Any], list[Any]]:
    """A sum of tensors, from the first to the last."""
    first, *others = operands
    total = wide_copy(first)
    with np.errstate(all="ignore"):
        for x in others:
            total += x
    return [total], []


def _by_parts(n: int) -> NodeTwin:
    """Equal parts along an axis, the numbers of each side by side."""

    def run(operands: Sequence[Any], variables: Sequence[int]) -> tuple[Sequence[Any], list[Any]]:
        axis, x = operands
        return [np.ascontiguousarray(part) for part in np.split(x, n, int(axis))], []

    return run


def _gathered(x: Numbers, places: NDArray[np.integer]) -> Numbers:
    """Rows of a variable; a place beyond them is refused by the machine, whose words are known."""
    return np.take(x, places, axis=0, mode="clip")


def _by_blas(site: NodeSite) -> NodeTwin:
    """A product of matrices, by numpy's BLAS: TensorFlow's own takes twice the time."""
    turned = [site.attr(name) for name in _PRODUCTS[site.node.type]]

    def run(operands: Sequence[Any], variables: Sequence[int]) -> tuple[Sequence[Any], list[Any]]:
        x, y = (
            np.swapaxes(x, -1, -2) if turn else x
            for x, turn in zip(operands, turned, strict=True))
        shape = _shape_of(x, y)
        if y.ndim == 2 and x.flags.c_contiguous:  # all rows in one product
            x = x.reshape(-1, x.shape[-1])
        out = _room((*x.shape[:-1], y.shape[-1]) if y.ndim == 2 else shape)
        with np.errstate(all="ignore"), OneBlasThread():
            return [np.matmul(x, y, out=out).reshape(shape)], []

    return run


def _shape_of(x: Numbers, y: Numbers) -> tuple[int, ...]:
    return (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1])


def _by_rule(site: NodeSite) -> NodeTwin:
    """A composite; what it saved on the machine is nothing to TensorFlow."""
    function = host_function(site)

    def run(operands: Sequence[Any], variables: Sequence[int]) -> tuple[Sequence[Any], list[Any]]:
        values = function(*(_numbers_of(x) if tf.is_tensor(x) else _plain(x) for x in operands))
        return [
            wide_copy(x) if np.asarray(x).dtype.kind == "f" else x for x in several(values)], []

    return run


def _by_kernel(site: NodeSite) -> NodeTwin:
    kernel, rooms = eager_kernel(site, kinds=_WIDE), dict[int, tf.Variable]()

    def run(operands: Sequence[Any], variables: Sequence[int]) -> tuple[Sequence[Any], list[Any]]:
        operands = list(map(_as_tensor, operands))
        for i in variables:
            if i in rooms:
                rooms[i].assign(operands[i])
            else:
                rooms[i] = tf.Variable(operands[i])
            operands[i] = rooms[i].handle
        outputs = [_numbers_of(x) for x in kernel(operands)]
        return outputs, [_numbers_of(tf.identity(rooms[i])) for i in variables]

    def eagerly(
        operands: Sequence[Any], variables: Sequence[int]
    ) -> tuple[Sequence[Any], list[Any]]:
        with context.eager_mode():
            return run(operands, variables)

    return eagerly


def _as_tensor(value: Any) -> Any:
    is_wide = isinstance(value, np.ndarray) and value.dtype == np.float64
    return _tensor_in(value) if is_wide else _plain(value)


def _plain(value: Any) -> Any:
    """A value as it is; what a composite saved on the machine is nothing to TensorFlow."""
    return value if isinstance(value, (ops.EagerTensor, np.ndarray, np.generic)) else np.float64(0)
