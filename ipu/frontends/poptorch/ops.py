"""Operations of PopTorch's in models.

What only steers the vendor's compiler returns its input and says so once; `custom_op`, whose code
is compiled for the device, is refused.

Source    Graphcore's PopTorch, python/ops.py: arguments, checks, texts of errors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from ipu.frontends.poptorch.dictionary import once
from ipu.frontends.poptorch.enums import MatMulSerializationMode, OverlapMode
from ipu.frontends.poptorch.outputs import rebuild

__all__ = [
    "Attribute", "MultiConv", "custom_op", "for_loop", "internal_cast", "ipu_print_tensor", "nop",
    "recomputationCheckpoint", "serializedMatMul", "set_available_memory", "set_overlap_for_input",
    "set_overlap_for_output",
]


def _check_tensor(name: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"{name} must take a torch.tensor argument. {type(tensor)} is not supported."
        )


def nop(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself.

    >>> nop(torch.ones(2))
    tensor([1., 1.])
    """
    _check_tensor("nop", tensor)
    return tensor


def ipu_print_tensor(tensor: torch.Tensor, title: str = "") -> torch.Tensor:
    """Prints the values to stderr when it runs, and the gradient in the backward pass.

    The result must be used in place of the tensor, else the gradient is not printed.

    >>> x = torch.tensor([1.0, 2.0])
    >>> y = ipu_print_tensor(x, "x") * 2  # stderr: x: [1.0, 2.0]
    >>> y
    tensor([2., 4.])
    """
    _check_tensor("ipu_print_tensor", tensor)
    shown = title or "print"
    _print(shown, tensor)
    if not tensor.requires_grad:
        return tensor
    same = tensor.view_as(tensor)
    same.register_hook(lambda gradient: _print(f"{shown}_gradient", gradient))
    return same


def _print(title: str, tensor: torch.Tensor) -> None:
    values = tensor.detach().float().numpy() if tensor.is_floating_point() else tensor.numpy()
    print(f"{title}: {values.tolist()}", file=sys.stderr)


def for_loop(
    count: int, body: Callable[..., Any], inputs: list[torch.Tensor]
) -> list[torch.Tensor]:
    """The body, `count` times: each time with the results of the time before.

    Raises    ValueError for inputs that are no list of tensors, and for a body that returns another
              number of tensors than it takes, or other shapes or types.

    >>> for_loop(3, lambda x, y: (x + y, y), [torch.zeros(1), torch.ones(1)])
    [tensor([3.]), tensor([1.])]
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError(f"count={count!r}: poptorch.for_loop runs 0 times or more; use an int")
    if not isinstance(inputs, list):
        raise ValueError(
            "poptorch.for_loop expects input tensors (inputs) to be a list of tensors. (Object is "
            "not list)"
        )
    for i, tensor in enumerate(inputs):
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                "poptorch.for_loop expects input tensors (inputs) to be a list of tensors. "
                f"(Object contained in list at index {i} is not torch.tensor)"
            )
    values = [tensor.clone() for tensor in inputs]
    for _ in range(count):
        results = body(*values)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        _check_body(values, results)
        values = results
    return values


def _check_body(before: list[torch.Tensor], after: list[Any]) -> None:
    kinds = [[(tuple(x.shape), x.dtype) for x in row if isinstance(x, torch.Tensor)]
             for row in (before, after)]
    if len(after) != len(before) or kinds[0] != kinds[1]:
        raise ValueError(
            f"poptorch.for_loop: the body takes {kinds[0]} and returns {kinds[1]}; the results of "
            "one iteration are the inputs of the next"
        )


def recomputationCheckpoint(*tensors: Any) -> Any:
    """The tensors themselves: values that recomputation would keep.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # it says once that it has no effect
    ...     recomputationCheckpoint(torch.ones(1), torch.zeros(1))
    (tensor([1.]), tensor([0.]))
    """
    once("recomputationCheckpoint", "the account recomputes whole stages")
    if len(tensors) == 1:
        return tensors[0]
    return tuple(tensors)


def serializedMatMul(
    lhs: torch.Tensor, rhs: torch.Tensor, mode: MatMulSerializationMode, factor: int = 0,
    keep_precision: bool = False,
) -> torch.Tensor:
    """The matrix product; cutting it to save memory is not modelled, nor its other rounding.

    >>> x = torch.tensor([[1.0, 2.0]])
    >>> serializedMatMul(x, x.T, MatMulSerializationMode.Disabled)
    tensor([[5.]])
    """
    if not isinstance(mode, MatMulSerializationMode):
        raise TypeError(f"mode={mode!r} is not a poptorch.MatMulSerializationMode")
    if mode is not MatMulSerializationMode.Disabled:
        once("serializedMatMul", "the product is computed in one piece")
    return torch.matmul(lhs, rhs)


def set_available_memory(tensor: torch.Tensor, available_memory_proportion: float) -> torch.Tensor:
    """The tensor itself.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # it says once that it has no effect
    ...     set_available_memory(torch.ones(2), 0.2)
    tensor([1., 1.])
    """
    _check_tensor("set_available_memory", tensor)
    if not 0 <= available_memory_proportion <= 1:
        raise ValueError(
            f"available_memory_proportion={available_memory_proportion}: use a share from 0 to 1"
        )
    once("set_available_memory", "Options.setAvailableMemoryProportion is of a whole IPU")
    return tensor


def set_overlap_for_input(input_tensors: Any, mode: OverlapMode) -> Any:
    """The tensors themselves.

    >>> set_overlap_for_input((torch.ones(1), torch.zeros(1)), OverlapMode.NoOverlap)
    (tensor([1.]), tensor([0.]))
    """
    return _overlapped("set_overlap_for_input", input_tensors, mode)


def set_overlap_for_output(output_tensors: Any, mode: OverlapMode) -> Any:
    """The tensors themselves.

    >>> set_overlap_for_output([torch.ones(1)], OverlapMode.NoOverlap)
    [tensor([1.])]
    """
    return _overlapped("set_overlap_for_output", output_tensors, mode)


def _overlapped(name: str, tensors: Any, mode: OverlapMode) -> Any:
    if not isinstance(mode, OverlapMode):
        raise TypeError(f"mode={mode!r} is not a poptorch.OverlapMode")
    if mode is not OverlapMode.NoOverlap:
        once(name, "PopART's schedule has no I/O overlap in ipu.plan")
    return rebuild(tensors, lambda x: x)


class MultiConv:
    """Convolutions inside run as ever: side by side is a question of the vendor's planner.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # it says once that it has no effect
    ...     with MultiConv():
    ...         torch.conv1d(torch.ones(1, 1, 3), torch.ones(1, 1, 2))
    tensor([[[2., 2.]]])
    """

    def __enter__(self) -> MultiConv:
        once("MultiConv", "convolutions are costed one by one")
        return self

    def __exit__(self, *error: Any) -> None:
        """Nothing to join."""


class Attribute:
    """Attributes of the operations inside, which the vendor's compiler reads when it outlines.

    attributes    by their kinds, each a dictionary, as __outline={"layer": "embedding"}.

    Raises    TypeError for a kind that is no dictionary.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # it says once that it has no effect
    ...     with Attribute(__outline={"layer": "embedding"}) as attribute:
    ...         attribute.attributes
    {'__outline': {'layer': 'embedding'}}
    """

    def __init__(self, **attributes: Any) -> None:
        for kind, values in attributes.items():
            if not isinstance(values, dict):
                raise TypeError(
                    f"{kind}={values!r} is no dictionary of attributes; use one, as "
                    '__outline={"layer": "embedding"}'
                )
        self.attributes = attributes

    def __enter__(self) -> Attribute:
        once("Attribute", "outlining is a question of the vendor's compiler")
        return self

    def __exit__(self, *error: Any) -> None:
        """Operations after it have the attributes from before it."""


def internal_cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in binary32 or binary16.

    Rounding  once, by the machine.
    Raises    ValueError for another data type.

    >>> internal_cast(torch.tensor([0.1]), torch.half).dtype
    torch.float16
    """
    _check_tensor("internal_cast", tensor)
    if dtype not in (torch.float32, torch.float16):
        raise ValueError("Invalid poptorch.cast target type. Expecting torch.float or torch.half")
    return tensor.to(dtype)


def custom_op(
    inputs: Any, name: str, domain: str, domain_version: int, example_outputs: Any,
    attributes: dict[str, Any] | None = None,
) -> Any:
    """Refused.

    Raises    NotImplementedError always.

    >>> custom_op([torch.ones(1)], "Cube", "com.acme", 1, [torch.ones(1)])
    Traceback (most recent call last):
    ...
    NotImplementedError: custom_op 'Cube': its code is compiled for the device and has no rule
    on the simulated machine; write it with operations of torch
    """
    raise NotImplementedError(
        f"custom_op {name!r}: its code is compiled for the device and has no rule on the simulated "
        "machine; write it with operations of torch"
    )
