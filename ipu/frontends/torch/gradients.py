"""Which memory holds gradients, parameters that had one, and copies of parameters.

By this an operation is known as part of an update where no optimiser of torch runs: it reads a
gradient, or writes a parameter that has or had a gradient, or a copy of one, as of an average. What
is computed from gradients outside of modules counts as a gradient there. Storages remember their
role, as `x.data` and `x.detach()` share them.

Source    docs/semantics.md §2 (named addresses: `optimizer`, and the end of a step).
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum, auto
from typing import Any

import torch

from ipu.frontends.torch.values import is_abstract

__all__ = ["Gradients", "Role", "leaves_below"]

#: The name of what a storage remembers.
_ROLE = "_fpsim_role"
_NOTHING = (None, None, 0)
#: Of sparse tensors, and of those that stand for others inside of torch.func.
_NO_STORAGE = (NotImplementedError, RuntimeError)


class Role(Enum):
    """What a storage is to updates."""

    PARAMETER = auto()  # of a module, without a gradient so far
    LEAF = auto()  # has or had a gradient
    COPY = auto()  # of a parameter, or a state beside it
    GRADIENT = auto()
    DERIVED = auto()  # computed from gradients


_OF_PARAMETERS = (Role.PARAMETER, Role.LEAF, Role.COPY)


def leaves_below(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that a backward pass from these tensors reaches.

    >>> w = torch.ones(2, requires_grad=True)
    >>> [leaf is w for leaf in leaves_below([(w * w).sum() + w[0]])]
    [True]
    """
    roots = list(tensors)
    leaves = {id(x): x for x in roots if x.grad_fn is None and x.requires_grad}
    nodes: list[Any] = [x.grad_fn for x in roots if x.grad_fn is not None]
    reached = set(nodes)
    while nodes:
        node = nodes.pop()
        if type(node).__name__ == "AccumulateGrad":
            leaves[id(node.variable)] = node.variable
            continue
        for following, _ in node.next_functions:
            if following is not None and following not in reached:
                reached.add(following)
                nodes.append(following)
    return list(leaves.values())


class Gradients:
    """Roles of storages in one session.

    reach    called with each leaf before a backward pass gives it a gradient.

    >>> gradients, w = Gradients(), torch.ones(2, requires_grad=True)
    >>> with gradients.following():
    ...     (w * w).sum().backward()
    >>> gradients.role_of(w), gradients.role_of(w.grad), gradients.have_changed()
    (<Role.LEAF: 2>, <Role.GRADIENT: 4>, False)
    """

    def __init__(self, reach: Callable[[torch.Tensor], None] = lambda leaf: None) -> None:
        self._reach = reach
        #: Ends of steps; a leaf that received a gradient remembers the number of then.
        self._step = 0
        #: Leaves with gradients since the last end, and where their memory was.
        self._leaves: dict[int, tuple[Callable[[], Any], int]] = {}
        self._is_written = False

    # Roles ----------------------------------------------------------------------------------

    def role_of(self, x: torch.Tensor) -> Role | None:
        """What the memory of a tensor is to updates; None for nothing."""
        return self._roles((x,))[0]

    def _roles(self, tensors: Iterable[torch.Tensor]) -> list[Role | None]:
        """As `role_of` says of each."""
        roles: list[Role | None] = []
        for x in tensors:
            try:
                session, role, _ = getattr(x.untyped_storage(), _ROLE, _NOTHING)
            except _NO_STORAGE:
                session = role = None
            roles.append(role if session is self else None)
        return roles

    def _mark(self, x: torch.Tensor, role: Role) -> None:
        with suppress(*_NO_STORAGE):
            setattr(x.untyped_storage(), _ROLE, (self, role, self._step))

    def know(self, parameter: torch.Tensor) -> None:
        """A parameter of a module, whose clones are copies of a parameter."""
        if self.role_of(parameter) is None:
            self._mark(parameter, Role.PARAMETER)

    def receive(self, leaves: Iterable[torch.Tensor]) -> None:
        """A backward pass has reached these leaves."""
        for leaf in leaves:
            self._mark(leaf, Role.LEAF)
            self._leaves[id(leaf)] = weakref.ref(leaf), _address(leaf)
            if leaf.is_leaf and leaf.grad is not None:
                self._mark(leaf.grad, Role.GRADIENT)

    # Operations -----------------------------------------------------------------------------

    def is_update(
        self, read: list[torch.Tensor], written: list[torch.Tensor], *, in_module: bool
    ) -> bool:
        """Whether an operation with these arguments is part of an update."""
        for x in written:
            role = self.role_of(x)
            if role is Role.LEAF or (role is Role.COPY and not in_module):
                return True
        for role in self._roles(read):
            if role is Role.GRADIENT or (role is Role.DERIVED and not in_module):
                return True
        if in_module or not written:
            return False
        if any(isinstance(x, torch.nn.Parameter) for x in written):
            return True  # of a model that was copied before it was known
        # A tensor that takes a share of a parameter is an average of it.
        return any(
            self.role_of(x) is Role.LEAF and x.shape == target.shape
            for x in read for target in written
        )

    def done(self, read: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        """An operation outside of modules that is part of an update has these results."""
        for x in results:
            role = self.role_of(x)
            if role is Role.LEAF:
                self._is_written |= _read(x)[2] == self._step
            elif role is None:
                is_copy = isinstance(x, torch.nn.Parameter) or any(
                    self.role_of(y) is Role.LEAF and y.shape == x.shape for y in read
                )
                self._mark(x, Role.COPY if is_copy else Role.DERIVED)

    def leaf_of(self, x: torch.Tensor) -> torch.Tensor | None:
        """The leaf with a gradient since the last end whose memory a tensor is, as `leaf.data`."""
        if self.role_of(x) is not Role.LEAF:
            return None
        here = _address(x)
        leaves = (reference() for reference, address in self._leaves.values() if address == here)
        return next((y for y in leaves if y is not None and y.shape == x.shape), None)

    def is_leaf(self, storage: torch.UntypedStorage) -> bool:
        """Whether a piece of memory is that of a leaf which has or had a gradient."""
        session, role, _ = getattr(storage, _ROLE, _NOTHING)
        return session is self and role is Role.LEAF

    def is_copy(self, storage: torch.UntypedStorage) -> bool:
        """Whether a piece of memory is a copy of a parameter, as of an average."""
        session, role, _ = getattr(storage, _ROLE, _NOTHING)
        return session is self and role is Role.COPY

    def is_of_parameter(self, x: torch.Tensor) -> bool:
        """Whether the memory of a tensor is a parameter, or a copy of one."""
        return self.role_of(x) in _OF_PARAMETERS

    def copied(self, source: torch.Tensor, result: torch.Tensor) -> None:
        """A clone outside of modules, or zeros for the sums that an update keeps."""
        if self.is_of_parameter(source) and self.role_of(result) is None:
            self._mark(result, Role.COPY)

    # Steps ----------------------------------------------------------------------------------

    def find_optimiser(self) -> bool:
        """Whether an optimiser of torch has parameters of this session; looks at every object."""
        return any(
            issubclass(type(x), torch.optim.Optimizer) and self._is_of(x) for x in gc.get_objects()
        )

    def _is_of(self, optimiser: torch.optim.Optimizer) -> bool:
        groups = getattr(optimiser, "param_groups", ())
        return any(self.role_of(p) in _OF_PARAMETERS for group in groups for p in group["params"])

    def have_changed(self) -> bool:
        """Whether leaves that received a gradient since the last end have other values.

        In place, or by another memory, as `p.data = …` gives it.
        """
        if self._is_written:
            return True
        for reference, address in self._leaves.values():
            leaf = reference()
            if leaf is not None and _address(leaf) != address:
                return True
        return False

    def end_step(self) -> None:
        """The next step begins."""
        for reference, _ in self._leaves.values():
            if (leaf := reference()) is not None and self.role_of(leaf) is not Role.LEAF:
                self._mark(leaf, Role.LEAF)
        self._leaves.clear()
        self._is_written = False
        self._step += 1

    # Backward passes --------------------------------------------------------------------------

    @contextmanager
    def following(self) -> Iterator[None]:
        """Backward passes inside tell which leaves they reach."""
        package = torch.autograd
        backward, grad = package.backward, package.grad

        def noted_backward(tensors: Any, *rest: Any, **options: Any) -> Any:
            roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
            leaves = leaves_below(x for x in roots if isinstance(x, torch.Tensor))
            for leaf in leaves:
                self._reach(leaf)
            result = backward(roots, *rest, **options)
            self.receive(leaf for leaf in leaves if leaf.grad is not None)
            return result

        def noted_grad(outputs: Any, inputs: Any, *rest: Any, **options: Any) -> Any:
            results = grad(outputs, inputs, *rest, **options)
            sources = (inputs,) if isinstance(inputs, torch.Tensor) else inputs
            rows = [r.values() if isinstance(r, dict) else r for r in (sources, results)]
            self.receive(x for x in rows[0] if isinstance(x, torch.Tensor) and x.is_leaf)
            for x in rows[1]:
                if x is not None and not x.requires_grad and self.role_of(x) is None:
                    self._mark(x, Role.GRADIENT)
            return results

        package.backward, package.grad = noted_backward, noted_grad
        try:
            yield
        finally:
            package.backward, package.grad = backward, grad


def _read(x: torch.Tensor) -> Any:
    try:
        return getattr(x.untyped_storage(), _ROLE, _NOTHING)
    except _NO_STORAGE:
        return _NOTHING


def _address(x: torch.Tensor) -> int:
    """Where its numbers lie; 0 without any, as of tensors of shapes alone."""
    if is_abstract(x):
        return 0
    try:
        return int(x.data_ptr())
    except _NO_STORAGE:
        return 0
