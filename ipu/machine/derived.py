"""Arrays that numpy makes of others: picked, compared or moved, and not computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from fpsim.state.processor import usual_arithmetic
from ipu.machine.device import Device

__all__ = ["derived"]


@usual_arithmetic
def derived(
    device: Device, rule: Callable[..., NDArray[Any]], *sources: NDArray[Any]
) -> NDArray[Any]:
    """What a rule makes of these arrays, in new memory; nothing is rounded.

    A tape that runs operations of the device again runs the rule again, so it must follow from
    these arrays and from constants alone.

    >>> import numpy as np
    >>> derived(Device(), lambda x: x > 0, np.float32([1, -2])).tolist()
    [True, False]
    """
    result = rule(*sources)
    if device.notes is not None:
        def again(*_: object) -> bool:
            result[...] = rule(*sources)
            return True

        device.notes.note(sources, (result,), again)
    return result
