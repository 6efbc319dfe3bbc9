"""What a function of halves gives in PyTorch on the machine, beside what rows of `ipu.ops` give."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from tests.ipu.frontends.torch.framework import machine, torch
from tests.ipu.ops.outcomes import of_row, outcome

__all__ = ["agree", "law", "seeds", "tensor", "turned"]

seeds = st.integers(0, 10**6)
law = settings(max_examples=12, deadline=None)


def tensor(codes):
    """Halves of these codes."""
    return torch.from_numpy(codes.view(np.float16).copy())


def of_torch(function, codes, is_differentiated, **choices):
    """Of function(*tensors) and, where the last operand is its gradient, of its gradients.

    A function may return more than its result: what is compared too, without gradients.
    """
    tensors = [tensor(c) for c in codes]
    sources = tensors[:-1] if is_differentiated else tensors
    try:
        with machine(**choices) as session:
            if is_differentiated:
                sources = [t.requires_grad_() for t in sources]
            results = function(*sources)
            results = results if isinstance(results, tuple) else (results,)
            if is_differentiated:
                slope = tensors[-1].reshape(results[0].shape)
                results += torch.autograd.grad(results[0], sources, slope)
    except FloatingPointError:
        return None
    return outcome(session.device, [r.detach().numpy() for r in results])


def agree(function, compute, codes, *, is_differentiated=True, of_machine=None, **choices):
    """A function of tensors, and a computation of arrays that gives the result and gradients.

    of_machine    options of the session alone; the others are the device's too.
    """
    for traps in (False, True):
        options = choices | (of_machine or {})
        ours = of_torch(function, codes, is_differentiated, traps=traps, **options)
        assert ours == of_row(compute, codes, traps=traps, **choices)


def turned(x, *axes):
    """An array with its axes in this order."""
    return x.like(np.ascontiguousarray(x.carrier.transpose(axes)))
