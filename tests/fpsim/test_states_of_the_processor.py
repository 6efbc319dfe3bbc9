"""Every public function gives the same bits whatever the thread has set in the processor (law).

Functions are not listed here but found: those of a Context, of an Array, of `fpsim` and its rooms
for users, and every function of numpy that takes an Array. Each is called with the first arguments
that it accepts; operands are subnormal numbers, zeros and their neighbours.
"""

from __future__ import annotations

import copy
import inspect
import io
import operator
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import fpsim as fp
import ipu.machine  # noqa: F401  (registers the units of the IPU)
from fpsim import linalg
from fpsim.array_functions import offered
from fpsim.inspect.probe import neighbours
from fpsim.inspect.profile import profile
from fpsim.kernels.status_register import HAS_STATUS
from tests.processors import STATES, under
from tests.tiers import reaches

pytestmark = pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")

#: Zeros of both signs, subnormals (some twice), the smallest normal number, ordinary numbers, NaN.
CODES = np.uint32([
    0, 1, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x80000000, 0x3F800000, 0x00400001, 0x3EAAAAAB,
    0xC0490FDB, 0x00000007,
])
OTHERS = np.uint32([
    1, 1, 0, 0x00400000, 0x80800001, 0x3F800001, 0x80000001, 0x33800000, 0x00400001, 0x3DCCCCCD,
    0x7FC00001, 0x80000000,
])


UNIT = "AMP_F32_F32"


class Operands:
    """Fresh ones for every call: some calls write them."""

    def __init__(self, fmt: fp.Format = fp.BINARY32, *, counts: bool = True) -> None:
        is_counting = counts and reaches("full") and fmt != fp.BINARY64
        self.context = fp.Context(fmt, count=is_counting)
        shift = 0 if fmt == fp.BINARY32 else 32
        self.x, self.y = (
            self.context.wrap((codes.astype(fmt.code_dtype) << shift).view(fmt.carrier))
            for codes in (CODES, OTHERS)
        )
        self.one = self.x[1:2]
        self.matrix = self.x.reshape(3, 4)
        self.image, self.kernel = self.x.reshape(1, 3, 4, 1), self.y[3:4].reshape(1, 1, 1, 1)


#: Arguments that are tried, in this order.
ARGUMENTS: list[Callable[[Operands], tuple[Any, ...]]] = [
    lambda o: (o.x,), lambda o: (o.x, o.y), lambda o: (o.x, o.y, o.x), lambda o: ([o.x, o.y],),
    lambda o: (o.matrix,), lambda o: (o.matrix, o.matrix), lambda o: (o.matrix, o.matrix.T),
    lambda o: (o.x, 2), lambda o: (o.x, 0, 0), lambda o: (o.x, [0, 1]), lambda o: (o.matrix, 0, 1),
    lambda o: (o.x.astype(bool), o.x), lambda o: (o.matrix, (4, 3)), lambda o: (2,),
    lambda o: (0.0, 1e-44, 3), lambda o: ("1e-45",), lambda o: (), lambda o: (o.x.values,),
    lambda o: (o.x.values, fp.BINARY32), lambda o: (o.x.codes(),), lambda o: (o.x, "int32"),
    lambda o: ("less", o.x, o.y), lambda o: (o.x, 2.0), lambda o: (o.x.codes(), fp.BINARY32),
    lambda o: (2, 1e-45), lambda o: (fp.BINARY16,), lambda o: (o.x, [4], o.y),
    lambda o: (o.x, 3, 1e-45), lambda o: ([o.x.astype(bool)], [o.x], 1e-45),
    lambda o: (o.x[1:], [[0, 1]], 0), lambda o: (o.matrix.values, (0,)),
    lambda o: (o.x, "bfloat16"), lambda o: (o.x, o.x.carrier), lambda o: (o.matrix, (2, 3, 4)),
    lambda o: (o.x.reshape(3, 2, 2), 2), lambda o: (o.x, np.arange(12)[::-1], 0),
    lambda o: (o.matrix, o.matrix.T, UNIT), lambda o: (o.matrix, o.matrix.T, UNIT, 1),
    lambda o: (o.image, o.kernel, UNIT), lambda o: (o.image, o.kernel, UNIT, o.image.shape),
    lambda o: (o.image, o.image, UNIT, o.kernel.shape),
    lambda o: (o.matrix[:2, 1:3],), lambda o: (o.matrix[1:, 1:], o.x[1:4]),
    lambda o: (o.x[[7, 1, 1, 7]].reshape(2, 2), o.x[1:3]),
    lambda o: (o.x[[7, 1, 1, 7]].reshape(2, 2),),
    lambda o: (o.matrix.codes().view(np.int8), o.matrix.codes().view(np.int8).T),
    lambda o: (lambda x: x * x, o.x, 2), lambda o: (np.tile(o.x.values, 8), "mxfp8"),
    lambda o: ("ij,ij->i", o.matrix, o.matrix), lambda o: ("mxfp8",),
]


def bits_of(outcome: Any) -> Any:
    """What is compared: bits, never values, which would be compared by the processor."""
    if isinstance(outcome, fp.Array):
        return bits_of(outcome.carrier)
    if isinstance(outcome, fp.Context):
        return repr(outcome)
    if isinstance(outcome, np.ndarray | np.generic):
        return str(outcome.dtype), np.shape(outcome), outcome.tobytes()
    if isinstance(outcome, float | complex):
        return np.array(outcome).tobytes()
    if isinstance(outcome, dict):
        return {name: bits_of(value) for name, value in outcome.items()}
    if isinstance(outcome, tuple | list) or inspect.isgenerator(outcome):
        return [bits_of(item) for item in outcome]
    if hasattr(outcome, "__dict__") and not callable(outcome):
        return {name: bits_of(value) for name, value in sorted(vars(outcome).items())}
    return repr(outcome)


#: What a context that counts refuses.
UNCOUNTED = {"iterate"}
#: An outcome, the flags and the counts of a call.
Call = Callable[[], Any]


def first_accepted(name: str, find: Callable[[Operands], Callable[..., Any]]) -> Call:
    """A call of the function with fresh operands: those that it accepts first."""
    for arguments in ARGUMENTS:

        def call(arguments: Any = arguments) -> Any:
            o = Operands(counts=name not in UNCOUNTED)
            function, values = find(o), arguments(o)
            with np.errstate(all="ignore"):
                result = bits_of(function(*values))
            read = bits_of(o.x), bits_of(o.y)  # `out=` and in-place operators write there
            return result, read, int(o.context.flags), o.context.counts

        try:
            call()
        except (TypeError, ValueError, IndexError, AttributeError, KeyError):
            continue
        return call
    raise AssertionError(f"no arguments for {name}; add some to ARGUMENTS")


#: Methods of a Context without results of numbers, and those whose outcome is another Context.
STATE = {"apart", "clear_flags", "in_format", "replace", "spawn"}
#: Of an Array.
NAMES = {"to_device"}

OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.eq, operator.ne,
    operator.lt, operator.le, operator.gt, operator.ge, operator.neg, operator.pos, abs,
    operator.iadd, operator.isub, operator.imul, operator.itruediv, repr, list, copy.copy,
    copy.deepcopy,
]
OF_ONE = [float, int, bool, complex, operator.truth, "{:.3g}".format]


def methods(kind: type) -> Iterator[str]:
    for name, member in inspect.getmembers(kind):
        if not name.startswith("_") and callable(member):
            yield name


def calls() -> Iterator[tuple[str, Call]]:
    """Every call, by a name."""
    for name in methods(fp.Context):
        if name not in STATE:
            yield f"Context.{name}", first_accepted(name, lambda o, n=name: getattr(o.context, n))
    for name in methods(fp.Array):
        if name not in NAMES:
            yield f"Array.{name}", of_array(name)
    # np.empty without `like` gives numpy's memory as it is.
    for function in sorted(offered() - {np.save, np.empty}, key=lambda f: f.__name__):
        yield (
            f"numpy.{function.__name__}",
            first_accepted(function.__name__, lambda o, f=function: f),
        )
    for module in (fp, linalg):
        for name in module.__all__:
            function = getattr(module, name)
            if inspect.isfunction(function) and name not in NOT_OF_VALUES:
                yield f"fpsim.{name}", first_accepted(name, lambda o, f=function: f)
    for of in OPERATORS:
        yield f"operator {of.__name__}", first_accepted(of.__name__, lambda o, f=of: f)
    yield from special()


#: Functions of `fpsim` that read no array, and one that is called by names (see `special`).
NOT_OF_VALUES = {
    "find_format", "find_rounding", "find_unit", "get_threads", "set_threads", "register", "refine",
}


def of_array(name: str) -> Call:
    """A method, on the array that it accepts."""

    def find(o: Operands) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            first, *rest = arguments
            return getattr(first, name)(*rest)

        return call

    return first_accepted(name, find)


def special() -> Iterator[tuple[str, Call]]:
    """What takes other operands."""

    def saved() -> Any:
        file = io.BytesIO()
        np.save(file, Operands().x)
        return file.getvalue()

    def namespace(name: str, *arguments: Any) -> Call:
        return lambda: bits_of(
            getattr(Operands().x.__array_namespace__(), name)(Operands().x, *arguments)
        )

    def refined(residual: str) -> Any:
        o = Operands()
        a, b = o.x[[7, 1, 1, 7]].reshape(2, 2), o.x[1:3]
        work = "binary64" if residual == "pairs" else "binary32"
        return bits_of(linalg.refine(a, b, factor="bfloat16", work=work, residual=residual).x)

    yield "fpsim.refine", lambda: refined("binary64")
    yield "fpsim.refine in pairs", lambda: refined("pairs")
    yield "numpy.save", saved
    yield "pickle", lambda: pickle.dumps(Operands().x.to_numpy())
    for take in OF_ONE:
        yield f"one {take}", lambda take=take: bits_of(take(Operands().one[0]))
    yield "in", lambda: 1e-45 in Operands().one
    for name in ("all", "counts", "inverse", "values"):
        yield f"namespace.unique_{name}", namespace(f"unique_{name}")
    for name in ("sort", "argsort"):
        yield f"namespace.{name}", namespace(name)
    for order in ("sequential", "pairwise", "blocked", "kahan", "exact"):
        for name in ("sum", "mean"):
            yield (
                f"{name} {order}",
                lambda o=order, n=name: bits_of(getattr(Operands().matrix, n)(1, o)),
            )
    yield "numpy's array", lambda: bits_of(np.asarray(Operands().x, np.float64))
    yield "profile", lambda: bits_of(profile(Operands().x.values, fp.BINARY16))
    yield (
        "profile of 16 bits",
        lambda: bits_of(profile(Operands().x.to("bfloat16").to_numpy(), fp.BINARY16)),
    )
    yield "neighbours", lambda: bits_of(neighbours("1e-45", fp.BINARY32))
    yield "smallest of binary64", lambda: bits_of(neighbours("1e-324", fp.BINARY64))
    for name in ("add", "multiply", "divide", "sqrt", "convert", "rint", "sign", "maximum"):
        yield f"binary64 {name}", lambda n=name: native(n)


def native(name: str) -> Any:
    o = Operands(fp.BINARY64)
    with np.errstate(all="ignore"):
        if name in ("convert",):
            return bits_of(o.context.array(o.x))
        one = name in ("sqrt", "rint", "sign")
        return bits_of(getattr(np, name)(*((abs(o.x),) if one else (o.x, o.y))))


@pytest.fixture(scope="module")
def every() -> dict[str, tuple[Call, Any]]:
    """The calls, and what they give in the usual state."""
    return {name: (call, call()) for name, call in calls()}


def test_there_are_many(every):
    assert len(every) > 250
    assert sum(name.startswith("Context.") for name in every) > 50
    assert sum(name.startswith("numpy.") for name in every) > 100


@pytest.mark.parametrize("state", [state for state in STATES if state != "usual"])
def test_no_function_shows_the_state(every, state):
    differing = []
    for name, (call, usual) in every.items():
        with under(state):
            result = call()
        if result != usual:
            differing.append(name)
    assert differing == []
