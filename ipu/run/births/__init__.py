"""Births: where numbers leave their format, what carries them on, and where they die.

A NaN, an infinity, a saturated number, a division by zero, a number flushed to zero and an addition
that changes nothing are *born* in one operation; an operation that has one among its operands only
carries it on, and is counted apart. Every array remembers the births that its elements come from,
so that of a loss that is not finite the way back to the first excursion is known. A birth dies in
an operation whose result is the same as that of the number itself would be, as a masked score in a
softmax does; one that only ever died did no harm.

Elements are compared where the operation goes element by element. Of products and reductions whose
operands hold a NaN, an infinity or a saturated number, all such results count as carried on.

Source    IEEE 754-2019 §7 (exceptions); Lam et al., FlowFPX (births, flow and deaths).
"""
