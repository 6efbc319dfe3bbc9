"""Binary32 by the processor's own operations, flags by its status register.

The processor rounds +, -, *, /, the square root and fma as IEEE 754 says, and what it does with
tiny results is known (`fpsim.kernels.status_register`). A NaN is made canonical here, since
the processor passes one on. Where other choices are asked for, `vector_step` computes.

Source    Intel SDM vol. 1 §4.8.3.5, §4.9.1 (NaNs, exceptions).
"""

from __future__ import annotations

from fpsim.kernels.elementwise.special import FMA, SQRT, processors_answer
from fpsim.kernels.lanes.arithmetic import fused
from fpsim.kernels.lanes.formula import formula
from fpsim.kernels.lanes.memory import load_float, stream_float
from fpsim.kernels.lanes.vectors import (
    as_bits,
    infinity_like,
    or_lanes,
    select,
    sign_like,
    umax,
)

__all__ = ["native_step", "native_summary"]


def native_step(op, x, xi, y, yi, z, zi, out, oi, streaming, rule, events):
    """One vector of results; the largest magnitude so far, which tells of NaNs."""
    sign = sign_like(rule.drop)
    u = load_float(x, xi, rule.drop)
    v = u if op == SQRT else load_float(y, yi, rule.drop)
    w = load_float(z, zi, rule.drop) if op == FMA else u
    result = fused(u, v, w) if op == FMA else processors_answer(op, u, v, w)
    bits = as_bits(result)
    magnitude = bits & ~sign
    bits = select(magnitude > infinity_like(sign), rule.nan_set, bits)
    stream_float(out, oi, bits, streaming)
    return umax(events[0], magnitude), events[1], events[2], events[3]


@formula
def native_summary(events, rule):
    """Flags that a NaN raises by the rule alone."""
    none = rule.drop ^ rule.drop
    return or_lanes(select(events[0] > infinity_like(sign_like(none)), rule.nan_flags, none))
