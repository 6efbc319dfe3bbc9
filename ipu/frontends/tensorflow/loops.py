"""`loops`: iterations on the machine, in one launch.

Source    facts of the vendor's loops.py: arguments, order of what a body returns, messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from ipu.frontends.tensorflow.engine.node import marked
from ipu.frontends.tensorflow.training.enclosing import building_loop

__all__ = ["repeat", "while_loop"]


def repeat(
    n: int, body: Callable[..., Any], inputs: Any = None, infeed_queue: Any = None,
    use_while_v1: bool = True,
) -> Any:
    """Run the body n times, in one launch; see `while_loop`."""
    return while_loop(None, body, inputs, infeed_queue, n, use_while_v1)


def while_loop(
    condition: Callable[..., Any] | None,
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: Any = None,
    maximum_iterations: Any = None,
    use_while_v1: bool = True,
) -> Any:
    """Run the body while the condition holds for the carried values.

    The body gets the carried values and then the infeed's element: by name where the element is one
    dictionary with texts as keys, else by position. It returns the carried values, then operations.
    The result is one value where one is carried, a list of several, an operation where there are
    none.

    use_while_v1   has no meaning here: TensorFlow 2.21 builds one kind of loop.

    Raises    ValueError for operations before values and for an infeed that nobody dequeues;
              TypeError where the body takes other arguments or returns other types.
    """
    carried = [] if inputs is None else inputs if isinstance(inputs, (list, tuple)) else [inputs]
    values = [tf.convert_to_tensor(value) for value in carried]
    loop = _Body(body, values, infeed_queue)
    variables = values or [tf.constant(0)]

    def holds(*current: Any) -> Any:
        return tf.constant(True) if condition is None else condition(*current[: len(values)])

    with building_loop(None if condition else maximum_iterations), marked(loop=True):
        results = tf.compat.v1.while_loop(
            holds, loop, variables, parallel_iterations=1,
            maximum_iterations=maximum_iterations,
            return_same_structure=True,
        )
    if infeed_queue is not None and not infeed_queue.dequeued:
        raise ValueError("The infeed queue has not been dequeued.")
    if not values:
        return results[0].op
    return results[0] if len(values) == 1 else list(results)


class _Body:
    """The body of a loop as TensorFlow calls it: carried values in, carried values out."""

    def __init__(self, body: Callable[..., Any], carried: list[Any], infeed: Any) -> None:
        self._body, self._infeed = body, infeed
        self._count = len(carried)
        self._types = [value.dtype for value in carried]

    def __call__(self, *current: Any) -> list[Any]:
        positional: tuple[Any, ...] = tuple(current[: self._count])
        named: dict[str, Any] = {}
        if self._infeed is not None:
            element = self._infeed._dequeue()
            if isinstance(element, (list, tuple)) and len(element) == 1 and _is_named(element[0]):
                element = element[0]
            if _is_named(element):
                named = element
            else:
                elements = element if isinstance(element, (list, tuple)) else (element,)
                positional += tuple(elements)
        self._check_arity(positional, named)
        tensors, operations = _split(self._body(*positional, **named))
        self._check_types(tensors)
        with tf.control_dependencies(operations):
            if not self._count:
                return [tf.identity(current[0])]
            return [tf.identity(tensor) for tensor in tensors]

    def _check_arity(self, positional: tuple[Any, ...], named: dict[str, Any]) -> None:
        import inspect

        try:
            signature = inspect.signature(self._body)
        except (TypeError, ValueError):
            return
        try:
            signature.bind(*positional, **named)
        except TypeError as error:
            fed = len(positional) + len(named) - self._count
            raise TypeError(
                f"Supplied loop body cannot be called with the specified inputs: {self._count} "
                f"inputs and {fed} inputs from the infeed queue ({error})"
            ) from None

    def _check_types(self, tensors: list[Any]) -> None:
        types = [tensor.dtype for tensor in tensors]
        if types != self._types:
            raise TypeError(
                "Mismatch between input types and output types for loop body: "
                f"{[t.name for t in self._types]} became {[t.name for t in types]}"
            )


def _is_named(element: Any) -> bool:
    return isinstance(element, dict) and all(isinstance(key, str) for key in element)


def _split(returned: Any) -> tuple[list[Any], list[Any]]:
    """The tensors and the operations that a body returns."""
    flat = [] if returned is None else returned
    flat = list(flat) if isinstance(flat, (list, tuple)) else [flat]
    operations = [x for x in flat if isinstance(x, tf.Operation)]
    tensors = flat[: len(flat) - len(operations)]
    if any(isinstance(x, tf.Operation) for x in tensors):
        raise ValueError(
            "IPU loop body must return zero or more Tensor values followed by zero or more "
            "Operations."
        )
    return [tf.convert_to_tensor(x) for x in tensors], operations
