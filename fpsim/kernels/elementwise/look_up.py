"""Values read from a table of all codes, with what each of them marks."""

from __future__ import annotations

import numpy as np

from fpsim.kernels.compiling import compiled

__all__ = ["look_up"]


@compiled
def look_up(bits, shift, values, marks, out, element_marks, by_element):
    """out = values where the bits without the last `shift` point; returns the marks, joined.

    by_element: element_marks receives every element's mark.
    """
    joined = np.uint8(0)
    for i in range(out.shape[0]):
        place = bits[i] >> shift
        mark = marks[place]
        out[i] = values[place]
        joined |= mark
        if by_element:
            element_marks[i] = mark
    return np.int64(joined)
