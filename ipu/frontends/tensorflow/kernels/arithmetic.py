"""Sums, products, quotients, roots and functions, element by element; each rounds once."""

from __future__ import annotations

from ipu.frontends.tensorflow.kernels.table import Run, Site, kernel

__all__: list[str] = []

_ONCE = "once"


def _verb(node: str, verb: str) -> None:
    @kernel(node, rounding=_ONCE)
    def build(site: Site) -> Run:
        run: Run = getattr(site.device, verb)
        return run


for _node, _verb_name in (
    ("AddV2", "add"), ("Add", "add"), ("Sub", "subtract"), ("Mul", "multiply"),
    ("RealDiv", "divide"), ("Div", "divide"), ("Maximum", "maximum"), ("Sqrt", "sqrt"),
    ("Rsqrt", "rsqrt"), ("Exp", "exp"), ("Log", "log"), ("Tanh", "tanh"), ("Sigmoid", "sigmoid"),
    ("Erf", "erf"), ("Neg", "negative"), ("Relu", "relu"),
):  # fmt: skip
    _verb(_node, _verb_name)


@kernel("Square", rounding=_ONCE)
def _square(site: Site) -> Run:
    multiply = site.device.multiply
    return lambda x: multiply(x, x)


@kernel("Reciprocal", "Inv", rounding=_ONCE)
def _reciprocal(site: Site) -> Run:
    divide = site.device.divide
    return lambda x: divide(1.0, x)
