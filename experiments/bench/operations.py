"""Single operations of PyTorch programs with their gradients, beside torch's in binary32.

An operation runs four times in a session, so that opening the session costs little of a record.
Where torch is not installed there is nothing to measure.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from math import prod
from typing import Any, NamedTuple

from fpsim.state.threads import get_threads
from ipu.experiments.bench.timing import Call, Size, TimedCase

__all__ = ["OPERATIONS", "SIZES", "cases"]

#: Times that an operation runs in a call.
_TIMES = 4
#: Policy, whether rounding is stochastic, and whether operations are counted.
_ROUNDINGS = ("fp32", False, False), ("fp16", True, False), ("fp16", True, True)


class Operation(NamedTuple):
    """Shapes of an operation's tensors, as a rule and with --quick, and what it makes of them.

    make    from torch and the tensors: the operation, which is called without arguments.
    """

    shapes: tuple[tuple[int, ...], ...]
    quick: tuple[tuple[int, ...], ...]
    make: Callable[..., Call]


def _with_gradient(operation: Callable[[Any, list[Any]], Any]) -> Callable[..., Call]:
    """The operation on tensors that want gradients, and a backward pass from its sum."""

    def make(torch: Any, *tensors: Any) -> Call:
        leaves = [tensor.requires_grad_() for tensor in tensors]

        def call() -> None:
            operation(torch, leaves).sum().backward()

        return call

    return make


def _plain(operation: Callable[[Any, list[Any]], Any]) -> Callable[..., Call]:
    return lambda torch, *tensors: partial(operation, torch, list(tensors))


def _lstm(torch: Any, *tensors: Any) -> Call:
    """A layer as programs have it, and a backward pass from the sum of its outputs."""
    x, hidden, cell, *weights = [tensor.requires_grad_() for tensor in tensors]
    layer = torch.nn.LSTM(x.shape[-1], hidden.shape[-1], bias=False)
    for parameter, weight in zip(layer.parameters(), weights, strict=True):
        parameter.data = weight.data
    return lambda: layer(x, (hidden, cell))[0].sum().backward()


def _rows(torch: Any, values: Any, n: int) -> Any:
    """An index for each row of values."""
    return torch.arange(len(values)) * 7919 % n


#: Operations by name.
OPERATIONS: dict[str, Operation] = {
    "cumsum": Operation(((64, 1024),), ((4, 8),), _plain(lambda torch, x: x[0].cumsum(-1))),
    "cumprod": Operation(((64, 1024),), ((4, 8),), _plain(lambda torch, x: x[0].cumprod(-1))),
    "scatter_add": Operation(
        ((500, 64), (4096, 64)), ((5, 2), (9, 2)),
        _plain(lambda torch, x: x[0].scatter_add(
            0, _rows(torch, x[1], len(x[0]))[:, None].expand(x[1].shape), x[1]
        )),
    ),
    "index_put": Operation(
        ((500, 64), (4096, 64)), ((5, 2), (9, 2)),
        _plain(lambda torch, x: x[0].index_put(
            (_rows(torch, x[1], len(x[0])),), x[1], accumulate=True
        )),
    ),
    "layer norm": Operation(
        ((256, 128), (128,), (128,)), ((2, 8), (8,), (8,)),
        _with_gradient(lambda torch, x: torch.nn.functional.layer_norm(
            x[0], x[1].shape, x[1], x[2]
        )),
    ),
    "softmax": Operation(
        ((16, 64, 64),), ((2, 4),), _with_gradient(lambda torch, x: torch.softmax(x[0], -1))
    ),
    "cross entropy": Operation(
        ((256, 1000),), ((4, 5),),
        _with_gradient(lambda torch, x: torch.nn.functional.cross_entropy(
            x[0], _rows(torch, x[0], x[0].shape[1])
        )),
    ),
    "gelu": Operation(
        ((256, 512),), ((4, 8),), _with_gradient(lambda torch, x: torch.nn.functional.gelu(x[0]))
    ),
    "LSTM": Operation(
        ((32, 8, 64), (1, 8, 64), (1, 8, 64), (256, 64), (256, 64)),
        ((2, 1, 2), (1, 1, 2), (1, 1, 2), (8, 2), (8, 2)),
        _lstm,
    ),
    "tanh": Operation(((256, 512),), ((4, 8),), _with_gradient(lambda torch, x: x[0].tanh())),
}

#: Full and quick; n is that of the operation.
SIZES = Size(n=1, repeats=7), Size(n=1, repeats=1)


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Each operation in binary32, in binary16 by stochastic rounding, and counted."""
    if importlib.util.find_spec("torch") is None:
        return
    for name, operation in OPERATIONS.items():
        for policy, sr, count in _ROUNDINGS:
            shapes = operation.quick if quick else operation.shapes
            n = _TIMES * max(map(prod, shapes))
            yield TimedCase(
                f"operation {name}", "binary16" if policy == "fp16" else "binary32",
                partial(_on_the_machine, name, shapes, policy, sr, count),
                _in_torch(name, shapes), n, size.repeats, "SR" if sr else "RNE", flags=True,
                data="counted" if count else "torch", peer=f"torch {version('torch')}",
            )


def _often(call: Call) -> None:
    for _ in range(_TIMES):
        call()


def _made(name: str, shapes: tuple[tuple[int, ...], ...]) -> Call:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(get_threads())
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    return OPERATIONS[name].make(torch, *tensors)


def _in_torch(name: str, shapes: tuple[tuple[int, ...], ...]) -> Call:
    return partial(_often, _made(name, shapes))


def _on_the_machine(
    name: str, shapes: tuple[tuple[int, ...], ...], policy: str, sr: bool, count: bool
) -> Call:
    front: Any = importlib.import_module("fpsim.torch")
    session, call = front.machine(policy, sr=sr, count=count), _made(name, shapes)

    def often() -> None:
        with session:
            _often(call)

    return often
