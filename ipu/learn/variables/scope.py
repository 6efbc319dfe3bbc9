"""Variable scopes, as TensorFlow 1 has them, and the variables of a model.

`Variables` holds the named variables of one model; inside `with variables:` layers create or reuse
them with `get_variable`, under the names and rules of the enclosing `variable_scope`s.

Source    tf.variable_scope, tf.get_variable.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fpsim.elementwise.sizes import checked_shape
from fpsim.records.formats import BINARY32, Format, find_number_format
from ipu import ops
from ipu.learn.policy import Policy, PolicyLike
from ipu.learn.tensor import Tensor
from ipu.learn.variables.initialisers import Initialiser, glorot_uniform
from ipu.learn.variables.regularisers import Regulariser
from ipu.learn.variables.variable import Variable
from ipu.machine.device import Device
from ipu.machine.reference import wide

__all__ = [
    "AUTO_REUSE",
    "Getter",
    "Variables",
    "current_device",
    "current_policy",
    "get_variable",
    "is_overridden",
    "variable_scope",
]


#: `reuse` value: create on first use, share afterwards.
AUTO_REUSE = "auto"


Getter = Callable[..., Tensor]


class _Scope(NamedTuple):
    """The names and rules that `get_variable` follows inside a `variable_scope`."""

    path: str
    getter: Getter
    variables: Variables
    initializer: Initialiser = glorot_uniform
    use_resource: bool = False
    reuse: bool | str = False
    regularizer: Regulariser | None = None
    dtype: Format = BINARY32

    @property
    def layer(self) -> str:
        """The path inside the model, without the scope around it."""
        return self.path.removeprefix(f"{self.variables.scope}/")


_current: ContextVar[_Scope] = ContextVar("variable_scope")


def _scope() -> _Scope:
    try:
        return _current.get()
    except LookupError:
        raise RuntimeError(
            "no variables are in use; open a block first: with Variables(device): …"
        ) from None


def current_device() -> Device:
    """The device whose variables are in use."""
    return _scope().variables.device


def current_policy() -> Policy | None:
    """The policy of the layer whose scope this is; None where the variables have none."""
    scope = _current.get(None) or _scope()
    try:
        return scope.variables.policies[scope.path]
    except KeyError:
        policy = scope.variables.policies[scope.path] = scope.variables.policy_of(scope.layer)
        return policy


def is_overridden(layer_policy: Policy) -> bool:
    """Whether the policy of the layer is another than that of the model."""
    policy = _scope().variables.policy
    if policy is None:
        return False
    default = policy.default
    return layer_policy is not default and layer_policy != default


class Variables(dict[str, Variable]):
    """The variables of a model, by full name; as a context manager, the ones that layers use.

    policy    formats of the layers; None: each computes in the format of its input.
    scope     the scope around the model, which names of layers leave out.
    layers    names of the layers that have asked for their policy.

    >>> with Variables(Device()) as variables, variable_scope("dense", use_resource=True):
    ...     weights = get_variable("weights", [4, 2])
    >>> variables
    Variables(dense/weights: binary32 (4, 2))
    """

    def __init__(
        self, device: Device, seed: int = 0, policy: PolicyLike | None = None, scope: str = ""
    ) -> None:
        super().__init__()
        self.device = device
        self.seed = seed
        self.policy = policy
        self.scope = scope
        self.layers: set[str] = set()
        #: What `policy_of` has answered, by the path of the scope.
        self.policies: dict[str, Policy | None] = {}
        #: Regularisers by the name of their variable.
        self.regularizers: dict[str, Regulariser] = {}
        self._tokens: list[Token[_Scope]] = []

    def __enter__(self) -> Variables:
        self._tokens.append(_current.set(_Scope("", self._get, self)))
        return self

    def __exit__(self, *_: object) -> None:
        _current.reset(self._tokens.pop())

    def policy_of(self, layer: str) -> Policy | None:
        """The policy of the layer of that name; None where the variables have none."""
        self.layers.add(layer)
        return None if self.policy is None else self.policy.of(layer)

    def regularization_loss(self) -> Tensor | None:
        """The sum of the regularisers of all variables, binary32; None where there are none.

        Rounding  each regulariser in its variable's format, then cast; the sums in the order of the
                  variables' creation.
        """
        total: Tensor | None = None
        for name, regularizer in self.regularizers.items():
            variable = self[name]
            with self.device.naming(f"{variable.layer}/regularizer"):
                loss = regularizer(variable)
                if loss.shape != ():
                    raise ValueError(
                        f"the regulariser of {name} returned shape {loss.shape}; return a scalar"
                    )
                fmt = wide(loss.dtype)
                loss = loss if loss.dtype == fmt else ops.cast(loss, dtype=fmt)
                total = loss if total is None else ops.add(total, loss)
        return total

    @property
    def trainable(self) -> list[Variable]:
        """Those that training changes, in the order of their creation."""
        return [v for v in self.values() if v.trainable]

    def _get(
        self, name: str, shape: Any = None, dtype: Format = BINARY32,
        initializer: Initialiser | None = None, trainable: bool = True,
        regularizer: Regulariser | None = None,
    ) -> Variable:
        """The getter behind all custom getters: creates the variable, or shares it."""
        scope = _current.get(None) or _scope()
        if not scope.use_resource:
            raise ValueError(
                f"use_resource={scope.use_resource} for variable {name}; the machine runs resource "
                "variables only, use variable_scope(…, use_resource=True)"
            )
        variable = self.get(name)
        if variable is None:
            variable = self._create(
                name,
                shape,
                dtype,
                scope.initializer if initializer is None else initializer,
                trainable,
            )
            if regularizer is not None:
                self.regularizers[name] = regularizer
            return variable
        if not scope.reuse:
            raise ValueError(
                f"variable {name} exists already; give the layer another op_name, or reuse=True"
            )
        if shape is not None and tuple(shape) != variable.shape:
            raise ValueError(
                f"shape={tuple(shape)} for {name}, which has {variable.shape}; use that"
            )
        if dtype is not variable.dtype and dtype != variable.dtype:
            raise ValueError(
                f"dtype={dtype.name} for {name}, which is {variable.dtype.name}; use that"
            )
        return variable

    def _create(
        self, name: str, shape: Any, dtype: Format, initializer: Initialiser, trainable: bool
    ) -> Variable:
        if _scope().reuse is True:
            raise ValueError(
                f"variable {name} does not exist; create it with reuse=False, or reuse=AUTO_REUSE"
            )
        if shape is None:
            raise ValueError(f"shape=None for the new variable {name}; give its shape")
        size = checked_shape(shape, dtype.carrier.itemsize)
        if not callable(initializer):
            raise TypeError(
                f"initializer={initializer!r} is not one; use ipu.learn.variables', or None"
            )
        values = np.asarray(initializer(size, self.seed, name), np.float64)
        self[name] = Variable(self.device.from_host(values, dtype), self.device, name, trainable)
        return self[name]

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}: {v.dtype.name} {v.shape}" for n, v in self.items())
        return f"Variables({shown})"


class _Opened:
    """The scope in use inside; operations count under its path, which the block is given."""

    __slots__ = ("_before", "_scope", "_token")

    def __init__(self, scope: _Scope) -> None:
        self._scope = scope

    def __enter__(self) -> str:
        device = self._scope.variables.device
        self._token, self._before = _current.set(self._scope), device.tensor
        device.tensor = self._scope.path
        return self._scope.path

    def __exit__(self, *_: object) -> None:
        self._scope.variables.device.tensor = self._before
        _current.reset(self._token)


def variable_scope(
    name: str,
    *,
    custom_getter: Getter | None = None,
    use_resource: bool | None = None,
    reuse: bool | str | None = None,
    initializer: Initialiser | None = None,
    regularizer: Regulariser | None = None,
    dtype: Format | str | None = None,
) -> _Opened:
    """Names, getter and rules for the variables created inside; operations inside count under it.

    Arguments that are None are inherited. Custom getters nest: the inner one is called first and
    receives the outer one as its getter, which takes the arguments of `get_variable`.

    initializer, regularizer, dtype    of variables that name none (default: glorot_uniform, none,
              binary32).
    reuse     True: existing variables are shared; AUTO_REUSE: shared or created; False: as outside.
    """
    outer = _scope()
    if not isinstance(name, str) or not name:
        raise ValueError(f"name={name!r} is not a scope's name; give a string")
    path = f"{outer.path}/{name}" if outer.path else name
    changes: dict[str, Any] = {"path": path, "reuse": reuse or outer.reuse}
    if custom_getter is not None:
        changes["getter"] = partial(custom_getter, outer.getter)
    if use_resource is not None:
        changes["use_resource"] = use_resource
    if initializer is not None:
        changes["initializer"] = initializer
    if regularizer is not None:
        changes["regularizer"] = regularizer
    if dtype is not None:
        changes["dtype"] = find_number_format(dtype, "dtype")
    return _Opened(outer._replace(**changes))


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Format | str | None = None,
    initializer: Initialiser | None = None,
    trainable: bool = True,
    regularizer: Regulariser | None = None,
) -> Tensor:
    """The variable of that name in the current scope, as its getter returns it.

    Without a custom getter that is a `Variable`; a custom getter may return any tensor, which has
    no `assign`.

    dtype         default: that of the scope, else binary32.
    regularizer   loss of the variable, see `Variables.regularization_loss`; default: that of the
                  scope, for trainable variables.

    Raises    ValueError for a name that is taken, for reuse that finds nothing, and outside
              `use_resource=True`; RuntimeError outside of `with variables:`.
    """
    scope = _current.get(None) or _scope()
    full = f"{scope.path}/{name}" if scope.path else name
    if regularizer is None and trainable:
        regularizer = scope.regularizer
    # Getters of users need not know of regularisers where there are none.
    more = {} if regularizer is None else {"regularizer": regularizer}
    fmt = scope.dtype if dtype is None else find_number_format(dtype, "dtype")
    return scope.getter(
        full, shape=shape, dtype=fmt, initializer=initializer,
        trainable=trainable, **more,
    )
