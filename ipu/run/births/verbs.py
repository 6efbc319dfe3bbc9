"""What the name of an operation tells of its results."""

from __future__ import annotations

__all__ = [
    "ADDITIONS", "CHOOSING", "ENTERING", "JOINT", "OF_POSITIVE", "ONE_SIDED", "base_of",
    "is_killer",
]

#: Words in the names of operations in which a number beyond the largest dies, as its limit does.
_KILLERS = (
    "softmax", "sigmoid", "tanh", "relu", "max", "min", "clamp", "exp", "erf", "gelu", "hardtanh",
    "where", "greater", "less", "equal",
)
#: Of these the result at a saturated operand is the limit only where the operand is negative.
ONE_SIDED = ("softmax", "exp", "relu", "gelu")
#: Words in the names of operations whose results are computed of several elements of an operand.
JOINT = (
    "mm", "matmul", "conv", "dot", "linear", "einsum", "softmax", "norm", "cum", "pool", "loss",
    "lstm", "gru", "fft", "attention",
)
#: Words in the names of functions that negative numbers have not.
OF_POSITIVE = ("sqrt", "log", "pow")
#: The operation in which numbers from outside are born.
ENTERING = "convert"
#: Results of these are one of their operands, or its negative.
CHOOSING = frozenset((
    "clamp", "clamp_min", "clamp_max", "minimum", "maximum", "min", "max", "fmin", "fmax",
    "hardtanh", "neg",
))
#: Sums and differences of two operands.
ADDITIONS = frozenset(("add", "sub", "addv2", "subtract", "assignadd", "assignsub", "rsub"))


def base_of(operation: str) -> str:
    """The verb of an operation's name.

    >>> base_of("aten.add_.Tensor"), base_of("AddV2"), base_of("aten.add")
    ('add', 'addv2', 'add')
    """
    parts = operation.lower().split(".")
    return (parts[1] if len(parts) > 1 else parts[0]).rstrip("_")


def is_killer(operation: str) -> bool:
    """Whether numbers beyond the largest die in an operation, as its limits do."""
    name = base_of(operation)
    return "backward" not in name and any(word in name for word in _KILLERS)
