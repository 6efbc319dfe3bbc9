"""torch's compiler: a session runs functions as they are written, and does not import it.

Its import takes as long as torch's own. Beside `torch.compile`, optimisers ask for it: a step, to
tell it where a graph ends; other methods, to keep it out of them. Nothing is compiled in a session,
so there they do without, unless the program has imported it.

Source    PyTorch 2.13, torch/_compile.py and torch/optim/optimizer.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from inspect import unwrap
from types import CodeType, FunctionType
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, _use_grad_for_differentiable

__all__ = ["without_compiler"]

#: Methods of every optimiser that torch keeps its compiler out of.
_KEPT_OUT = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")
#: Where torch notes what it calls in their place.
_NOTE = "__dynamo_disable"


@contextmanager
def without_compiler() -> Iterator[None]:
    """Nothing inside is compiled: a compiled graph is not seen here."""
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        else:
            stack.enter_context(_until_asked_for())
            stack.enter_context(_optimisers_without_import())
        yield


@contextmanager
def _until_asked_for() -> Iterator[None]:
    """The first function that is compiled imports the compiler, and all run as they are written."""
    compile_before = torch.compile
    with ExitStack() as stack:

        @wraps(compile_before)
        def compiling(*arguments: Any, **options: Any) -> Any:
            if torch.compile is compiling:
                torch.compile = compile_before
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            return compile_before(*arguments, **options)

        torch.compile = compiling
        stack.callback(setattr, torch, "compile", compile_before)
        yield


@contextmanager
def _optimisers_without_import() -> Iterator[None]:
    """Methods of optimisers do what they do where nothing is compiled, without asking for it.

    A step gets other code, not another function: hooks and schedulers have wrapped the function.
    """
    methods = [vars(Optimizer)[name].__wrapped__ for name in _KEPT_OUT]
    kept_out = [method for method in methods if not hasattr(method, _NOTE)]
    steps, before, plain = _steps(), _code_of_steps(), _code_of(_plain(_plain))
    for method in kept_out:
        setattr(method, _NOTE, method)
    for step in steps:
        step.__code__ = plain
    try:
        yield
    finally:
        for step in steps:
            step.__code__ = before
        for method in kept_out:
            delattr(method, _NOTE)


def _code_of_steps() -> CodeType:
    """What torch puts around the steps of its optimisers."""
    return _code_of(_use_grad_for_differentiable(_plain))


def _code_of(function: Any) -> CodeType:
    code: CodeType = function.__code__
    return code


def _steps() -> list[FunctionType]:
    """Functions with that code: the steps of torch's optimisers, below what hooks put around."""
    code = _code_of_steps()
    classes = [c for c in vars(torch.optim).values() if isinstance(c, type)]
    functions = [
        unwrap(vars(kind)["step"], stop=lambda function: function.__code__ is code)
        for kind in classes if "step" in vars(kind)
    ]
    return [function for function in functions if function.__code__ is code]


def _plain(func: Callable[..., Any]) -> Callable[..., Any]:
    """A step as torch runs it, but for the compiler; torch's code names what it calls `func`."""

    def step(*args: Any, **kwargs: Any) -> Any:
        with torch.set_grad_enabled(args[0].defaults["differentiable"]):
            return func(*args, **kwargs)

    return step
