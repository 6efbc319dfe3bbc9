"""Cuts: where a tensor of an earlier stage enters a later one, the graph of gradients is cut.

Every call of torch in a stage passes here, above autograd. A tensor that an earlier stage computed
is replaced by an inlet: its values, with a gradient of its own. So a stage's backward pass ends at
its inlets, whatever way the tensor took through the user's Python code. Gradients of an inlet are
added as they come, latest first, beginning with those of later stages; that is the order of the
uncut graph, so cutting moves no bit.

Autograd numbers the nodes of a thread in the order of the forward pass, so the number of a tensor's
node tells whether a stage before computed it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from ipu.frontends.poptorch.engine.casting import downcast

__all__ = ["CutMode", "Cuts", "Inlet", "functions_cut"]

#: The mode of each thread.
_current = threading.local()


class Inlet(NamedTuple):
    """A tensor of an earlier stage in a later one.

    origin     the tensor there.
    leaf       where the gradient is read.
    through    what the stage computes with: the leaf's values, behind one node.
    """

    origin: torch.Tensor
    leaf: torch.Tensor
    through: torch.Tensor


class _Through(torch.autograd.Function):  # type: ignore[misc]
    """The same values in the same memory, and no view: operations in place may follow."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.empty(0, dtype=x.dtype).set_(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Cuts:
    """The inlets of one forward pass, by stage.

    used    parameters that the stages' calls took, in order of first use.
    """

    def __init__(self) -> None:
        self.stage = 0
        self._starts = [0]
        self.inlets: list[dict[int, Inlet]] = [{}]
        self.used: list[dict[int, torch.Tensor]] = [{}]

    def begin(self, stage: int) -> None:
        """What follows belongs to this stage."""
        while len(self._starts) <= stage:
            self._starts.append(torch.autograd._get_sequence_nr())
            self.inlets.append({})
            self.used.append({})
        self.stage = stage

    def start(self, stage: int) -> int:
        """Number of the stage's first node."""
        return self._starts[stage]

    def is_earlier(self, x: torch.Tensor) -> bool:
        """Whether a stage before the present one computed a tensor."""
        node = x.grad_fn
        return node is not None and node._sequence_nr() < self._starts[self.stage]

    def entering(self, x: torch.Tensor) -> torch.Tensor:
        """A tensor as the present stage sees it."""
        if not x.requires_grad:
            return x
        if x.grad_fn is None:
            if isinstance(x, torch.nn.Parameter):
                self.used[self.stage].setdefault(id(x), x)
            return x
        return self.inlet(x).through if self.is_earlier(x) else x

    def inlet(self, x: torch.Tensor) -> Inlet:
        """The inlet of an earlier stage's tensor in the present stage."""
        own = self.inlets[self.stage]
        if id(x) not in own:
            leaf = x.detach().requires_grad_()
            own[id(x)] = Inlet(x, leaf, _Through.apply(leaf))
        return own[id(x)]


@contextmanager
def functions_cut() -> Iterator[None]:
    """Users' own autograd functions, which no mode sees, take inlets too."""
    apply = torch.autograd.Function.__dict__["apply"]

    def applied(cls: Any, *arguments: Any, **options: Any) -> Any:
        mode = getattr(_current, "mode", None)
        if mode is not None and not mode.is_open and cls is not _Through:
            arguments = tuple(mode.entered(x) for x in arguments)
        return apply.__func__(cls, *arguments, **options)

    torch.autograd.Function.apply = classmethod(applied)
    try:
        yield
    finally:
        torch.autograd.Function.apply = apply


class CutMode(TorchFunctionMode):  # type: ignore[misc]
    """Replaces tensors that enter a stage; tells what calls returned.

    note    called with each function and its result.
    halves  mixed operands become float16.
    """

    def __init__(
        self, cuts: Cuts, note: Callable[[Any, Any], None], *, halves: bool = True
    ) -> None:
        super().__init__()
        self._cuts, self._note, self._halves = cuts, note, halves
        #: Backward passes run as they are: what they recompute has been cut already.
        self.is_open = False

    def __enter__(self) -> Any:
        _current.mode = self
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        _current.mode = None
        super().__exit__(*error)

    def entered(self, x: Any) -> Any:
        """An argument as the present stage sees it; a look at it is no call of the program."""
        with torch._C.DisableTorchFunction():
            return self._entered(x, [])

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.is_open:
            args, kwargs = downcast(func, args, kwargs) if self._halves else (args, kwargs)
            return func(*args, **kwargs)
        replaced: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        args = tuple(self._entered(x, replaced) for x in args)
        if kwargs:
            kwargs = {name: self._entered(x, replaced) for name, x in kwargs.items()}
        if self._halves:
            args, kwargs = downcast(func, args, kwargs)
        result = func(*args, **kwargs)
        for origin, through, version in replaced:
            if through._version != version:
                # The values are those of the origin too; what was saved there notices.
                torch.autograd.graph.increment_version(origin)
        self._note(func, result)
        return result

    def _entered(self, x: Any, replaced: list[tuple[torch.Tensor, torch.Tensor, int]]) -> Any:
        if isinstance(x, torch.Tensor):
            entered = self._cuts.entering(x)
            if entered is not x and entered.grad_fn is not None:
                replaced.append((x, entered, entered._version))
            return entered
        if type(x) in (list, tuple):
            return type(x)(self._entered(each, replaced) for each in x)
        return x
