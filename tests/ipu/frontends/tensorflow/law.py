"""What a function of halves gives in TensorFlow on the machine, beside rows of `ipu.ops`."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from tests.ipu.frontends.tensorflow.framework import configured, current, launch, machine, tf
from tests.ipu.ops.outcomes import of_row, outcome

__all__ = ["agree", "law", "seeds"]

seeds = st.integers(0, 10**6)
law = settings(max_examples=6, deadline=None)


def of_tensorflow(function, codes, is_differentiated, stable_norms, traps, **choices):
    """Of function(*tensors) and, where the last operand is its gradient, of its gradients.

    A function may return more than its result, in a list: what is compared too.
    """

    def program(*tensors):
        if not is_differentiated:
            results = function(*tensors)
            return list(results) if isinstance(results, list | tuple) else [results]
        *sources, slope = tensors
        with tf.GradientTape() as tape:
            tape.watch(sources)
            results = function(*sources)
            y, *others = results if isinstance(results, list | tuple) else [results]
        return [y, *others, *tape.gradient(y, sources, output_gradients=slope)]

    tensors = [tf.constant(c.view(np.float16)) for c in codes]
    with machine(**choices):
        configured(1, stable_norms, inv=traps, div0=traps, oflo=traps, nanoo=False)
        try:
            results = launch(tf.function(program), *tensors)
        except FloatingPointError:
            return None
        ours = outcome(current().device, [r.numpy() for r in results])
        return ours._replace(status=current().status.word)  # a launch ends by reading it


def agree(
    function, compute, codes, *, is_differentiated=True, stable_norms=False, of_machine=None,
    **choices,
):
    """A function of tensors, and a computation of arrays that gives the result and gradients.

    of_machine    options of the machine alone; the others are the device's too.
    """
    for traps in (False, True):
        options = choices | (of_machine or {})
        ours = of_tensorflow(
            function, codes, is_differentiated, stable_norms, traps, **options
        )
        assert ours == of_row(compute, codes, traps=traps, **choices)
