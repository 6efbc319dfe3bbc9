"""What cases import from modules whose place may change: all of it here."""

from __future__ import annotations

from types import SimpleNamespace


def _rooms() -> SimpleNamespace:
    """Everything that is imported from modules whose place may change."""
    import ipu.machine  # registers the units of the IPU
    from fpsim.records.units import UNITS
    from ipu.learn.accumulate import Accumulation
    from ipu.learn.loss_scale import AutomaticLossScale, KerasLossScale
    from tests.fpsim.in_partials import (
        conv2d,
        conv2d_input_gradient,
        conv2d_weight_gradient,
        k_split,
    )

    return SimpleNamespace(
        machine=ipu.machine,
        conv2d=conv2d,
        conv2d_input_gradient=conv2d_input_gradient,
        conv2d_weight_gradient=conv2d_weight_gradient,
        k_split=k_split,
        UNITS=UNITS,
        Accumulation=Accumulation,
        AutomaticLossScale=AutomaticLossScale,
        KerasLossScale=KerasLossScale,
    )


ROOMS = _rooms()
