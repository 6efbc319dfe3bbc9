"""A step of AdamW and of SGD over the parameters of a transformer, without its gradients.

Through PyTorch's front end, where torch is installed, beside torch's own step over lists of tensors
(`foreach`) in binary32. The parameters are those of a transformer of four layers: 52 tensors, of
which half are vectors. A session is opened for several steps, as a program does.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from math import prod
from typing import Any

from fpsim.state.threads import get_threads
from ipu.experiments.bench.timing import Call, Size, TimedCase

__all__ = ["cases", "shapes"]

#: Steps of a call.
_TIMES = 8

#: Width and layers, as a rule and with --quick.
_MODELS = (128, 4), (16, 1)
_VOCABULARY, _CONTEXT = 160, 256
_OPTIMISERS: dict[str, tuple[str, dict[str, object]]] = {
    "AdamW": ("AdamW", {"lr": 1e-3, "eps": 1e-4}),
    "SGD": ("SGD", {"lr": 0.1, "momentum": 0.9}),
}
#: Policy and whether rounding is stochastic.
_ROUNDINGS = ("fp16", False), ("fp16", True), ("fp32", False)


def shapes(width: int, layers: int) -> list[tuple[int, ...]]:
    """Of the parameters.

    >>> sum(prod(shape) for shape in shapes(128, 4))
    867072
    """
    d = width
    layer = [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (d,), (4 * d, d), (4 * d,),
             (d, 4 * d), (d,)]
    ends = [(d,), (d,), (_VOCABULARY, d)]
    return [(_CONTEXT, d), (_VOCABULARY, d), *(layer * layers), *ends]


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Each optimiser to nearest and stochastically in binary16, and in binary32."""
    if importlib.util.find_spec("torch") is None:
        return
    parameters = shapes(*_MODELS[quick])
    n = _TIMES * sum(map(prod, parameters))
    for name in _OPTIMISERS:
        for policy, sr in _ROUNDINGS:
            yield TimedCase(
                f"update {name}", "binary16" if policy == "fp16" else "binary32",
                partial(_on_the_machine, name, parameters, policy, sr),
                _plain(name, parameters), n, size.repeats, "SR" if sr else "RNE", flags=True,
                data="torch", peer=f"torch {version('torch')} foreach",
            )


def _made(name: str, parameters: list[tuple[int, ...]]) -> tuple[Any, list[Any], Any]:
    """torch, parameters that are random, and their optimiser over lists."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(get_threads())
    generator = torch.Generator().manual_seed(1)
    tensors = [
        torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in parameters
    ]
    kind, options = _OPTIMISERS[name]
    return torch, tensors, getattr(torch.optim, kind)(tensors, foreach=True, **options)


def _backward(tensors: list[Any]) -> None:
    """Gradients of the sum of all squares."""
    total = tensors[0].square().sum()
    for tensor in tensors[1:]:
        total = total + tensor.square().sum()
    (total * 0.01).backward()


def _plain(name: str, parameters: list[tuple[int, ...]]) -> Call:
    _, tensors, optimiser = _made(name, parameters)
    _backward(tensors)
    return partial(_often, optimiser.step)


def _often(step: Call) -> None:
    for _ in range(_TIMES):
        step()


def _on_the_machine(
    name: str, parameters: list[tuple[int, ...]], policy: str, sr: bool
) -> Call:
    front: Any = importlib.import_module("fpsim.torch")
    session = front.machine(policy, sr=sr)
    _, tensors, optimiser = _made(name, parameters)
    with session:
        _backward(tensors)

    def call() -> None:
        with session:
            _often(optimiser.step)

    return call
