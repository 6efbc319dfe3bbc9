"""Generators of a program that begin at the seeds of a pair of runs, whatever the program does.

Programs that set no seed begin at the pair's number; those that set one have it moved by the pair,
so that pair 0 is the program as it stands and other pairs are other runs. Two ways with the same
pair have equal initial weights, order of the data and dropout.

    random, numpy.random, torch, TensorFlow 1 and 2    global generators
    numpy.random.default_rng()                         each call its own stream
    torch.Generator, random.Random, numpy's RandomState and tf.random.Generator    as in the program

A program that takes its seed from the clock or the system is out of reach; two runs of one pair
differ then, which `fpsim … --compare` tells.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

import numpy as np

__all__ = ["seeded"]

#: Between the seeds of one pair and the next, and how many seeds there are.
_STRIDE, _SEEDS = 1_000_003, 1 << 32


@contextmanager
def seeded(pair: int) -> Iterator[None]:
    """Inside, all generators belong to a pair; afterwards setting a seed is what it was.

    >>> with seeded(3):
    ...     a = random.random(), np.random.default_rng().integers(100)
    >>> with seeded(3):
    ...     b = random.random(), np.random.default_rng().integers(100)
    >>> a == b
    True
    """
    fresh = count()

    def moved(seed: Any) -> Any:
        """A seed of the program; None takes the next of the pair's."""
        if seed is None:
            return (pair * _STRIDE + next(fresh)) % _SEEDS
        is_whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
        return (int(seed) + pair * _STRIDE) % _SEEDS if is_whole and pair else seed

    with ExitStack() as stack:
        for owner, name in _setters():
            _replace(stack, owner, name, _moving(getattr(owner, name), moved))
        tensorflow = sys.modules.get("tensorflow")
        if tensorflow is not None:
            graph = tensorflow.Graph
            _replace(stack, graph, "__init__", _seeded_graph(graph.__init__, pair * _STRIDE))
            tensorflow.compat.v2.random.set_seed(0)  # the facade's `random` has TensorFlow 1's
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(0)
        yield


def _replace(stack: ExitStack, owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Until the stack is closed."""
    stack.callback(setattr, owner, name, getattr(owner, name))
    setattr(owner, name, function)


def _setters() -> Iterator[tuple[Any, str]]:
    """Functions that take a seed, of what is imported."""
    yield random, "seed"
    yield np.random, "seed"
    yield np.random, "default_rng"
    torch, tensorflow = sys.modules.get("torch"), sys.modules.get("tensorflow")
    if torch is not None:
        yield torch, "manual_seed"
        yield torch.random, "manual_seed"
    if tensorflow is not None:
        if hasattr(tensorflow.random, "set_seed"):
            yield tensorflow.random, "set_seed"
        yield tensorflow.compat.v1, "set_random_seed"
        yield tensorflow.compat.v1.random, "set_random_seed"


def _moving(original: Callable[..., Any], moved: Callable[[Any], Any]) -> Callable[..., Any]:
    def setter(*arguments: Any, **named: Any) -> Any:
        seed, *others = arguments or [named.pop("seed", named.pop("a", None))]
        return original(moved(seed), *others, **named)

    setter.__name__, setter.__doc__ = original.__name__, original.__doc__
    return setter


def _seeded_graph(original: Callable[..., Any], seed: int) -> Callable[..., Any]:
    """Graphs of TensorFlow 1 that have no seed have the pair's."""
    def begin(self: Any, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        if self.seed is None:
            self.seed = seed % _SEEDS

    return begin
