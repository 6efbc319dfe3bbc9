"""ctx.iterate against the loop that calls the step (**differential**: codes, flags, numbers of
operations, traps), fixed points, **corners** and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fpsim as fp
from tests.tiers import pick, reaches

SETTINGS: list[dict[str, Any]] = [
    {}, {"rounding": "SR", "seed": 5}, {"format": "binary32", "rounding": "SR", "seed": 9},
    {"format": "e5m2", "rounding": "RTP"}, {"rounding": "RTN", "subnormals": "flush_both"},
    {"format": "f143", "rounding": fp.SR(5)}, {"format": "bfloat16", "rounding": "SR_EQUAL"},
    {"format": "tf32", "rounding": "RTZ", "subnormals": "flush_results"},
    {"format": "binary32", "rounding": fp.SR(20, "even")},
]


def heat(u: Any) -> Any:
    """Ends held, the middle diffuses."""
    new = u.copy()
    new[1:-1] = u[1:-1] + 0.23 * (u[2:] - 2 * u[1:-1] + u[:-2])
    return new


def rolled(u: Any) -> Any:
    return np.concatenate([u[:1], u[1:] * 0.75 + np.roll(u, 1)[1:] / 3])


def in_place(u: Any) -> Any:
    u *= 0.5
    u[::2] += 0.125
    return -u


def many_operations(u: Any) -> Any:
    c = u.context
    return c.sqrt(abs(c.fma(u, 0.5, 0.25))) - u**3 / (2 + abs(u))


def of_a_matrix(u: Any) -> Any:
    return u.T * 0.5 + u[:1] + np.where(np.eye(u.shape[0], dtype=bool), u, 0.25)


def exchanged(u: Any) -> Any:
    first = u[0]  # a number, which the assignment below does not change
    u[0] = u[-1] * 0.75
    u[-1] = first
    return u


STEPS: list[tuple[Callable[..., Any], tuple[int, ...]]] = [
    (heat, (61,)), (rolled, (7,)), (in_place, (5,)), (many_operations, (33,)),
    (of_a_matrix, (4, 4)), (exchanged, (5,)), (lambda u: u * 1.5 + 1e-3, ()),
    (lambda u: u[::-1], (3,)),
    (lambda u: np.diff(np.append(u, 0.1)) * 0.5, (16,)),
]


def looped(step: Callable[..., Any], x: fp.Array, n: int) -> list[fp.Array]:
    states = [x]
    for _ in range(n):
        states.append(step(states[-1].copy()))
    return states


#: Every step with one of three settings, and one step with the three (in the full tier with all); a
#: run is compiled for five seconds, so all pairs belong to the deep tier.
PAIRS = [
    (number, choices)
    for number in range(len(STEPS))
    for i, choices in enumerate(SETTINGS)
    if reaches("deep") or i == number % 3 or (number == 0 and i < pick(3, len(SETTINGS), 0))
]


@pytest.mark.parametrize(("number", "choices"), PAIRS, ids=str)
def test_a_run_is_the_loop(number: int, choices: dict[str, Any]) -> None:
    step, shape = STEPS[number]
    numbers = np.random.default_rng(number).standard_normal(shape)
    one, other = (fp.Context(**{"format": "binary16"} | choices) for _ in range(2))
    n = 40
    states = looped(step, one.array(numbers), n)
    x = other.array(numbers)
    before = x.codes().tolist()
    run = other.iterate(step, x, n, watch=range(n + 1))
    assert x.codes().tolist() == before
    assert run.x.codes().tolist() == states[-1].codes().tolist()
    assert run.watched.codes().tolist() == [s.codes().tolist() for s in states]
    assert (other.flags, other.operation) == (one.flags, one.operation)
    if run.fixed is not None:
        same = [s.codes().tolist() == states[-1].codes().tolist() for s in states]
        assert same.index(True) <= run.fixed
        assert all(same[run.fixed :])
    # What follows draws the bits that follow.
    assert (run.x + 0.1).codes().tolist() == (states[-1] + 0.1).codes().tolist()


def test_large_arrays_are_the_loop_too() -> None:
    one, other = (fp.Context("binary16", rounding="SR", seed=3) for _ in range(2))
    numbers = np.random.default_rng(1).standard_normal(2_501)
    states = looped(heat, one.array(numbers), 3)
    run = other.iterate(heat, other.array(numbers), 3)
    assert run.x.codes().tolist() == states[-1].codes().tolist()
    assert (other.flags, other.operation) == (one.flags, one.operation)


def test_several_arrays_are_a_state() -> None:
    """The recurrence of Kahan and Muller, and constants that are Arrays."""
    one, other = fp.Context("binary32"), fp.Context("binary32")

    def step(v: Any, w: Any) -> tuple[Any, Any]:
        return w, 111 - 1130 / w + 3000 / (w * v)

    v, w = one.array(2.0), one.array(-4.0)
    for _ in range(30):
        v, w = step(v, w)
    run = other.iterate(step, (other.array(2.0), other.array(-4.0)), 30, watch=15)
    assert [a.item() for a in run.x] == [v.item(), w.item()]
    assert [a.shape for a in run.watched] == [(2,), (2,)]
    matrix = other.array([[1.0, 2.0], [3.0, 4.0]])
    scaled = other.iterate(lambda u: u * matrix + matrix, other.zeros((2, 2)), 3)
    assert scaled.x.tolist() == looped(lambda u: u * matrix + matrix, other.zeros((2, 2)), 3)[
        -1
    ].tolist()


def test_it_stops_at_a_fixed_point_and_says_when() -> None:
    context = fp.Context("binary16")
    x = context.array([0.0, 5.0])
    run = context.iterate(lambda u: u * 0.5 + 1, x, 10**12, watch=5 * 10**11)
    states = looped(lambda u: u * 0.5 + 1, x, 20)
    first = next(i for i in range(20) if states[i].tolist() == states[i + 1].tolist())
    assert (run.fixed, run.x.tolist()) == (first, [2.0, 2.0])
    assert run.watched.tolist() == [[2.0, 2.0]] * 2
    # Under SR only a step that rounds nothing stays.
    stochastic = fp.Context("binary16", rounding="SR", seed=1)
    still = stochastic.iterate(lambda u: u * 0.5 + 1, stochastic.array([2.0]), 10**9)
    assert (still.fixed, stochastic.operation) == (0, 1 + 2 * 10**9)
    moving = stochastic.iterate(lambda u: u + 2.0**-14, stochastic.array([1.0]), 1000)
    assert moving.fixed is None
    assert moving.x.item() > 1.0


def test_a_trap_stops_at_its_step() -> None:
    choices: dict[str, Any] = {"rounding": "SR", "seed": 2, "traps": fp.Flags.OVERFLOW}
    one, other = fp.Context("binary16", **choices), fp.Context("binary16", **choices)

    def step(u: Any) -> Any:
        return u * 1.7 + 0.3

    with pytest.raises(fp.FloatingPointTrap) as called:
        looped(step, one.array([1.0, 3.0]), 10**6)
    with pytest.raises(fp.FloatingPointTrap) as run:
        other.iterate(step, other.array([1.0, 3.0]), 10**6)
    assert str(run.value) == str(called.value)
    assert (other.flags, other.operation) == (one.flags, one.operation)
    assert one.operation > 20


def test_no_steps_and_no_elements() -> None:
    context = fp.Context("binary16", rounding="SR")
    x = context.array([0.5])
    before = context.operation
    run = context.iterate(lambda u: u * 3, x, 0, watch=[0])
    assert (run.x.tolist(), run.watched.tolist(), run.fixed) == ([0.5], [[0.5]], None)
    assert context.operation == before
    assert context.iterate(lambda u: u * 3, context.zeros(0), 5).x.shape == (0,)
    assert context.operation == before + 5


HALF = fp.Context("binary16", rounding="SR")
X = HALF.array([1.0, 2.0, 3.0])
CALLS = iter(range(1000))
OUTSIDE = HALF.zeros(3)


def writes_outside(u: Any) -> Any:
    OUTSIDE[:] = u
    return u


@pytest.mark.parametrize(
    ("step", "kind", "message"),
    [
        (lambda u: u if float(u[0]) > 0 else -u, TypeError, "number in an Array is not traced"),
        (lambda u: u * u.item(0), TypeError, "number in an Array is not traced"),
        (lambda u: HALF.array(u.values), TypeError, "number in an Array is not traced"),
        (lambda u: np.where(u > 1, u, 0), TypeError, "'compare' is not traced"),
        (lambda u: HALF.exp(u), TypeError, "exp is not traced"),
        (lambda u: HALF.round_to_integral(u), TypeError, "round_to_integral is not traced"),
        (lambda u: np.sort(u), TypeError, r"np\.sort is not traced"),
        (lambda u: u + HALF.array(0.1), TypeError, "convert of numbers from outside|convert is"),
        (lambda u: np.maximum(u, 1), TypeError, "not traced"),
        (lambda u: u * u.sum(), TypeError, "not traced|not a Context"),
        (lambda u: u.max() * u, TypeError, "not traced"),
        (lambda u: u % 1, TypeError, "remainder is not traced"),
        (lambda u: u * u.sum(), TypeError, "a sum is not traced"),
        (lambda u: HALF.matmul(u, u) * u, TypeError, "not traced|not a Context"),
        (lambda u: u.to("bfloat16"), TypeError, "not traced"),
        (lambda u: u[:2], ValueError, r"turns shapes \[\(3,\)\] into \[\(2,\)\]"),
        (lambda u: u.values, TypeError, "not traced"),
        (lambda u: None, TypeError, "step returned NoneType"),
        (lambda u: u * next(CALLS), ValueError, "something else when it is called again"),
        (lambda u: u + fp.Context("bfloat16").ones(3), TypeError, "never promotes"),
        (lambda u: u + np.full(3, 0.1), TypeError, "does not hold"),
        (lambda u: HALF.add(u, [1, 2, 3]), TypeError, r"ctx\.array"),
        (lambda u: u + 1e9, ValueError, "beyond binary16"),
        (writes_outside, (TypeError, ValueError), "float|cast|cannot"),
    ],
)
def test_what_cannot_be_traced_is_refused_and_nothing_changes(step, kind, message) -> None:  # type: ignore[no-untyped-def]
    before, core = (HALF.flags, HALF.operation, X.tolist(), OUTSIDE.tolist()), HALF.core
    with pytest.raises(kind, match=message):
        HALF.iterate(step, X, 3)
    assert (HALF.flags, HALF.operation, X.tolist(), OUTSIDE.tolist()) == before
    assert HALF.core is core


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: HALF.iterate(heat, X, -1), ValueError, "n=-1 is not a number of steps"),
        (lambda: HALF.iterate(heat, X, 1.5), ValueError, "n=1.5 is not a number of steps"),
        (lambda: HALF.iterate(heat, np.ones(3), 1), TypeError, "not an Array of this context"),
        (lambda: HALF.iterate(heat, fp.Context("binary16").ones(3), 1), TypeError, "this context"),
        (lambda: HALF.iterate(heat, X, 3, watch=0), ValueError, "watch=0 is not a distance"),
        (lambda: HALF.iterate(heat, X, 3, watch=[2, 1]), ValueError, "steps 0 to 3 ascending"),
        (lambda: HALF.iterate(heat, X, 3, watch=[4]), ValueError, "steps 0 to 3 ascending"),
        (lambda: HALF.iterate(heat, X, 3, watch="all"), ValueError, "watch='all'"),
        (lambda: fp.Context("binary64").iterate(heat, fp.Context("binary64").ones(3), 1),
         TypeError, "not an Array of this context"),
    ],
)
def test_impossible_runs_are_refused(call, kind, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(kind, match=message):
        call()


def test_contexts_that_a_kernel_does_not_serve_are_named() -> None:
    for context, message in (
        (fp.Context("binary64"), "native reference"),
        (fp.Context("binary16", count=True), "count=False"),
        (fp.Context("binary16", rounding=fp.SR(8), bits=fp.Xoroshiro128aox(1)), "bits of Philox"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            context.iterate(heat, context.ones(3), 1)


@pytest.mark.parametrize("of", [lambda x: x, lambda _: 5.0], ids=["traced", "constant"])
@pytest.mark.parametrize("size", [1, 3])
def test_a_step_that_writes_into_an_outside_array_is_refused(
    of: Callable[[fp.Array], object], size: int
) -> None:
    context = fp.Context("binary16")
    outside = context.array([1.0] * size)

    def step(x: fp.Array) -> fp.Array:
        outside[...] = of(x)
        return x + outside

    with pytest.raises(TypeError, match="a write into an outside Array, which cannot hold traced"):
        context.iterate(step, context.array([2.0] * size), 3)
    assert outside.tolist() == [1.0] * size
