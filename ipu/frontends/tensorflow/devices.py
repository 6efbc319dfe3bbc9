"""`tf.device("/device:IPU:0")`: the name of a device that TensorFlow 2.21 does not have.

The vendor's TensorFlow has a device of that name; TensorFlow 2.21 refuses nodes that ask for it.
Nodes inside lie on the host, but for those of a program: what `ipu_compiler.compile`,
`strategy.run` or Keras launch. Variables that are made in a strategy's scope and results of its
programs say that they lie on the IPU; their memory is TensorFlow's on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from tensorflow.python.eager import context
from tensorflow.python.framework import ops

from ipu.frontends.tensorflow.engine.launch import programs
from ipu.frontends.tensorflow.settings.notes import note

__all__ = ["accept_devices", "is_ipu", "show_on"]

_MARK = "_fpsim_accepts_ipus"
#: Of a tensor of TensorFlow's that stands for one of the machine: the name of its device.
_PLACE = "_fpsim_device"
Scope = Callable[..., AbstractContextManager[Any]]


def is_ipu(device: Any) -> bool:
    """Whether a device, or its name, is an IPU.

    >>> is_ipu("/job:localhost/device:IPU:0"), is_ipu("cpu"), is_ipu(None)
    (True, False, False)
    """
    kind = getattr(device, "device_type", None)
    if isinstance(device, str):
        kind = next(
            (part.split(":")[-2 if part.count(":") else -1] for part in device.split("/")
             if "IPU" in part.upper()), None,
        )
    return isinstance(kind, str) and kind.upper() == "IPU"


def show_on(tensor: Any, device: str) -> Any:
    """The tensor, whose `device` is from now on that of the machine; one of a graph as it is.

    device    as "/device:IPU:0".
    """
    if isinstance(tensor, ops.EagerTensor):
        setattr(tensor, _PLACE, f"/job:localhost/replica:0/task:0{device}")
    return tensor


def _show_devices() -> None:
    """TensorFlow's tensors tell the device that `show_on` has given them."""
    usual = ops.EagerTensor.device

    def device(self: Any) -> str:
        return str(getattr(self, _PLACE, None) or usual.__get__(self))

    ops.EagerTensor.device = property(device)


def accept_devices() -> None:
    """From now on scopes of IPUs are accepted; nothing happens the second time."""
    if hasattr(ops.Graph.device, _MARK):
        return
    _show_devices()
    ops.Graph.device = _accepting(ops.Graph.device, 1)
    context.device = _accepting(context.device, 0)


def _accepting(scope: Scope, position: int) -> Scope:
    """A scope of devices whose argument at this position may be an IPU."""

    @contextmanager
    def accepting(*arguments: Any) -> Iterator[Any]:
        device = arguments[position]
        if callable(device):
            arguments = (*arguments[:position], _on_host(device), *arguments[position + 1 :])
        if not is_ipu(device):
            with scope(*arguments) as result:
                yield result
            return
        before = programs()
        with scope(*arguments[:position], None) as result:
            yield result
        # A tensor's own device, with its job, is asked for by TensorFlow itself.
        is_asked = isinstance(device, str) and not device.startswith("/job:")
        if is_asked and programs() == before and not ops.inside_function():
            note(
                f"nothing inside of tf.device({str(device)!r}) went to the machine: pass functions "
                "to ipu_compiler.compile or strategy.run, or fit a Keras model in the scope of an "
                "IPUStrategy"
            )

    setattr(accepting, _MARK, True)
    return accepting


def _on_host(device: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that names a node's device; nodes for an IPU have none."""

    def named(node: Any) -> Any:
        name = device(node)
        return "" if is_ipu(name) else name

    return named
