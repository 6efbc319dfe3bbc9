"""The textbook loops of docs/linear-algebra.md, written with operators of Arrays."""

from __future__ import annotations

import numpy as np

import fpsim as fp
from tests.tiers import reaches

HALF, SINGLE, NATIVE = (fp.Context(name) for name in ("binary16", "binary32", "binary64"))

#: One context of each kind that a kernel knows; functions, since a test starts with fresh ones.
CONTEXTS = {
    "half": lambda: fp.Context("binary16"),
    "stochastic": lambda: fp.Context("bfloat16", rounding="SR", seed=7),
    "native": lambda: fp.Context("binary64"),
    "counted": lambda: fp.Context("binary16", rounding="SR", seed=7, count=True),
}
if reaches("full"):
    CONTEXTS |= {
        "single down": lambda: fp.Context("binary32", rounding="RTN"),
        "flushed": lambda: fp.Context("e5m2", subnormals="flush_both", nan="propagate_first"),
    }


def matrix(context, shape, seed=0):
    return context.array(np.random.default_rng(seed).standard_normal(shape))


def fresh(context):
    """The same context before its first operation."""
    context.clear_flags()
    context.operation = 0
    return context


def lu(a, pivot=True):
    a, (m, n) = a.copy(), a.shape
    p = np.arange(m)
    for k in range(min(m - 1, n)):
        largest = k + int(np.argmax(abs(a[k:, k]))) if pivot else k
        a[[k, largest]], p[[k, largest]] = a[[largest, k]], p[[largest, k]]
        if not a[k:, k].any():
            continue
        a[k + 1 :, k] = a[k + 1 :, k] / a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k, k + 1 :])
    return a, p


def forward(a, b, unit=False):
    x = b.copy()
    for i in range(len(a)):
        if not unit:
            x[i] = x[i] / a[i, i]
        if i + 1 < len(a):
            terms = x[i] * a[i + 1 :, i] if x.ndim == 1 else np.outer(a[i + 1 :, i], x[i])
            x[i + 1 :] -= terms
    return x


def backward(a, b):
    x = b.copy()
    for i in reversed(range(len(a))):
        x[i] = x[i] / a[i, i]
        if i:
            x[:i] -= x[i] * a[:i, i] if x.ndim == 1 else np.outer(a[:i, i], x[i])
    return x


def cholesky(a):
    a, n = a.copy(), len(a)
    for k in range(n):
        a[k, k] = np.sqrt(a[k, k])
        a[k + 1 :, k] = a[k + 1 :, k] / a[k, k]
        a[k + 1 :, k + 1 :] -= np.outer(a[k + 1 :, k], a[k + 1 :, k])
    return np.tril(a)


def qr(a):
    a, (m, n), reflections = a.copy(), a.shape, []
    for k in range(min(m - 1, n)):
        x = a[k:, k].copy()
        beta = np.copysign(np.sqrt(np.sum(x * x)), -x[0])
        tau = (beta - x[0]) / beta
        v = x / (x[0] - beta)
        v[0] = 1
        if k + 1 < n:
            w = tau * (v.reshape(1, -1) @ a[k:, k + 1 :])
            a[k:, k + 1 :] -= np.outer(v, w[0])
        a[k:, k] = 0
        a[k, k] = beta
        reflections.append((k, tau, v))
    least = min(m, n)
    q = a.like(np.eye(m, least, dtype=a.dtype))
    for k, tau, v in reversed(reflections):
        w = tau * (v.reshape(1, -1) @ q[k:, k:])
        q[k:, k:] -= np.outer(v, w[0])
    return q, np.triu(a[:least])


def refine(A, b, factors, up, work, steps):
    """As an analyst writes it; `up` and `work` are contexts."""
    x = factors.solve(work.array(b))
    for _ in range(steps):
        r = up.array(b) - (up.array(A) @ x.to(up).reshape(-1, 1)).reshape(-1)
        x = x + factors.solve(r.to(work))
    return x
