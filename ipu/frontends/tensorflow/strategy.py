"""`IPUStrategyV1`: functions that run on the machine, variables that start on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import tensorflow as tf

from ipu.frontends.tensorflow.devices import show_on
from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.engine.launch import launching_functions
from ipu.frontends.tensorflow.engine.replica_set import ALONE, ReplicaSet
from ipu.frontends.tensorflow.engine.replicas import in_replicas
from ipu.frontends.tensorflow.engine.trace import tracing
from ipu.frontends.tensorflow.iterators import feed_by_iterators

__all__ = ["IPUStrategy", "IPUStrategyV1"]


class IPUStrategyV1(tf.distribute.OneDeviceStrategy):  # type: ignore[misc]
    """One system of IPUs, as TensorFlow sees a device.

    enable_dataset_iterators   iterators of data sets inside the scope feed programs.
    """

    #: The replicas of its programs, those of other processes too.
    replica_set: ReplicaSet = ALONE

    def __init__(
        self, ipu_device: str = "/device:IPU:0", cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True, enable_keras_extensions: bool = True,
    ) -> None:
        super().__init__(cpu_device)
        self.extended._create_variable = self._placed(self.extended._create_variable)
        self._ipu_device, self._cpu_device = ipu_device, cpu_device
        self.feeds_by_iterators = enable_dataset_iterators
        self._enable_keras_extensions = enable_keras_extensions
        self._functions: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._traced: WeakSet[Any] = WeakSet()

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Call a function on the machine: one launch.

        A function that is no tf.function is made one. Inside of a function that is being traced the
        call is part of that function.

        Raises    TypeError for what is no function, and for arguments that are no list.
        """
        if not callable(fn):
            raise TypeError(f"fn={fn!r} is not a function; use strategy.run(function, args)")
        if not isinstance(args, list | tuple):
            raise TypeError(f"args={args!r} is not a list of arguments; use args=[value]")
        arguments, named = tuple(args), dict(kwargs or {})
        if not tf.executing_eagerly():
            if not tf.distribute.in_cross_replica_context():
                return fn(*arguments, **named)
            return super().run(fn, arguments, named)
        with self.scope():
            launch = self.extended.call_for_each_replica
            results = launch(self._launch, (fn, arguments, named))
        return tf.nest.map_structure(lambda x: show_on(x, self._ipu_device), results)

    def _launch(self, fn: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        function = self._function(fn)
        if function not in self._traced:
            with tracing(current().loss_scale):  # variables are created and initialised on the host
                function.get_concrete_function(*arguments, **named)
            self._traced.add(function)
        machine = current()
        with in_replicas(machine, machine.replicas, self.replica_set), launching_functions():
            return function(*arguments, **named)

    def experimental_distribute_dataset(self, dataset: Any, options: Any = None) -> Any:
        """The data set itself: there is one worker."""
        return dataset

    def _placed(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """What makes variables of the scope: they say that they lie on the IPU."""

        def created(*arguments: Any, **named: Any) -> Any:
            variable = create(*arguments, **named)
            show_on(variable.handle, self._ipu_device)
            return variable

        return created

    def _function(self, fn: Any) -> Any:
        if hasattr(fn, "get_concrete_function"):
            return fn
        compiled = self._functions.get(fn)
        if compiled is None:
            compiled = self._functions[fn] = tf.function(fn)
        return compiled


feed_by_iterators()

#: The name of earlier and later versions.
IPUStrategy = IPUStrategyV1
