"""scipy with its switch SCIPY_ARRAY_API: what computes in the context (**differential** with
binary64), what refuses. In a process of its own: scipy reads the switch when it is imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.special

PROGRAM = """
import json, sys
import numpy as np
import scipy.differentiate, scipy.integrate, scipy.optimize.elementwise, scipy.signal
import scipy.sparse.linalg, scipy.special, scipy.stats
import fpsim as fp

ctx = fp.Context(sys.argv[1], asarray="refuse")
x, a, one, zero = ctx.array([0.5, 1.0, 2.0, 0.25]), np.eye(2) + 1, ctx.array(1.0), ctx.array(0.0)
CALLS = {
    "logsumexp": lambda: scipy.special.logsumexp(x),
    "softmax": lambda: scipy.special.softmax(x),
    "log_softmax": lambda: scipy.special.log_softmax(x),
    "trapezoid": lambda: scipy.integrate.trapezoid(x),
    "zscore": lambda: scipy.stats.zscore(x),
    "entropy": lambda: scipy.stats.entropy(x),
    "tanhsinh": lambda: scipy.integrate.tanhsinh(np.exp, zero, one).integral,
    "derivative": lambda: scipy.differentiate.derivative(np.exp, x).df,
    "find_root": lambda: scipy.optimize.elementwise.find_root(
        lambda v: v * v - 0.5, (zero, one)).x,
    "lfilter": lambda: scipy.signal.lfilter(ctx.array([1.0, 0.5]), ctx.array([1.0, -0.25]), x),
    "nsum": lambda: scipy.integrate.nsum(lambda k: 1 / (k * k), one, ctx.array(9.0)).sum,
    "lfilter of lists": lambda: scipy.signal.lfilter([1.0], [1.0], x),
    "solve_ivp": lambda: scipy.integrate.solve_ivp(lambda t, y: -y, (0.0, 1.0), x),
    "gmres": lambda: scipy.sparse.linalg.gmres(ctx.array(a), ctx.ones(2)),
    "simpson": lambda: scipy.integrate.simpson(x),
    "cosm1": lambda: scipy.special.cosm1(x),
}
shown = {}
for name, call in CALLS.items():
    try:
        result = call()
        assert isinstance(result, fp.Array) and result.format == ctx.format, name
        shown[name] = result.values.tolist()
    except Exception as error:
        shown[name] = f"{type(error).__name__}: {error}"
print(json.dumps(shown))
"""


@cache
def outcome(fmt: str) -> dict[str, object]:
    root = str(Path(__file__).parents[2])
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "PYTHONPATH": root}
    run = subprocess.run([sys.executable, "-c", PROGRAM, fmt], env=environment, check=True,
                         capture_output=True, text=True)
    shown: dict[str, object] = json.loads(run.stdout)
    return shown


X = np.array([0.5, 1.0, 2.0, 0.25])
EXPECTED = {
    "logsumexp": scipy.special.logsumexp(X), "softmax": scipy.special.softmax(X),
    "log_softmax": scipy.special.log_softmax(X), "trapezoid": 3.375,
    "zscore": (X - X.mean()) / X.std(), "tanhsinh": np.e - 1, "find_root": 0.5**0.5,
    "nsum": sum(1 / k**2 for k in range(1, 10)),
}


@pytest.mark.parametrize("fmt", ["binary32", "binary16"])
@pytest.mark.parametrize("name", EXPECTED)
def test_it_computes_in_the_context(name: str, fmt: str) -> None:
    """No Array becomes an ndarray, and the result is near that of binary64."""
    result = outcome(fmt)[name]
    assert not isinstance(result, str), result
    eps = {"binary32": 2.0**-23, "binary16": 2.0**-10}[fmt]
    np.testing.assert_allclose(result, EXPECTED[name], rtol=8 * eps, atol=2 * eps)


def test_derivatives_have_the_error_that_their_steps_leave() -> None:
    np.testing.assert_allclose(outcome("binary32")["derivative"], np.exp(X), rtol=1e-4)
    np.testing.assert_allclose(outcome("binary16")["derivative"], np.exp(X), rtol=0.1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lfilter", "asarray='refuse'"), ("entropy", "asarray='refuse'"),
        ("lfilter of lists", "Multiple namespaces"), ("solve_ivp", "asarray='refuse'"),
        ("gmres", "type not understood"), ("simpson", "asarray='refuse'"),
        ("cosm1", "asarray='refuse'"),
    ],
)
def test_the_others_refuse_and_leave_no_format(name: str, message: str) -> None:
    assert message in str(outcome("binary16")[name])
