"""Flags and the trap as records: values, names, and what crosses to another process (golden)."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from fpsim.records.flags import Flags, FloatingPointTrap, as_integer


def test_flags_have_the_values_of_softfloat() -> None:
    assert [int(f) for f in Flags] == [1, 2, 4, 8, 16]
    assert (Flags.OVERFLOW | Flags.INEXACT | Flags.INVALID).names == [
        "INVALID", "OVERFLOW", "INEXACT",
    ]
    assert Flags.NONE.names == []


def test_a_trap_tells_what_happened() -> None:
    trap = FloatingPointTrap("divide", Flags.DIVBYZERO, (1, 2), [1.0, 0.0], "DIV0 set")
    assert isinstance(trap, FloatingPointError)
    assert (trap.operation, trap.flags, trap.index) == ("divide", Flags.DIVBYZERO, (1, 2))
    assert str(trap) == "divide raised DIVBYZERO at (1, 2): (1.0, 0.0)\nDIV0 set"


def test_a_trap_shows_long_operands_short() -> None:
    trap = FloatingPointTrap("matmul", Flags.INVALID, (0, 0), [np.arange(100.0)], "")
    assert "..." in str(trap)
    assert len(str(trap)) < 200


@pytest.mark.parametrize("shape", [(), (2,)])
def test_a_trap_shows_a_signalling_nan_without_a_warning(shape: tuple[int, ...]) -> None:
    signalling = np.full(shape, 0x7F800001, np.uint32).view(np.float32)
    trap = FloatingPointTrap("add", Flags.INVALID, (0,), [signalling], "")
    assert "nan" in str(trap)


def test_a_trap_crosses_to_another_process() -> None:
    trap = FloatingPointTrap("divide", Flags.DIVBYZERO, (1,), [1.0, 0.0], "DIV0 set")
    copy = pickle.loads(pickle.dumps(trap))
    assert (copy.operation, copy.flags, copy.index, copy.operands, copy.dump) == (
        trap.operation, trap.flags, trap.index, trap.operands, trap.dump,
    )
    assert str(copy) == str(trap)


def test_flags_are_plain_integers_where_kernels_take_them() -> None:
    assert as_integer("traps", Flags.INVALID | Flags.INEXACT) == 17
    assert type(as_integer("traps", np.uint8(31))) is int  # type: ignore[arg-type]
    assert as_integer("traps", Flags.NONE) == 0


@pytest.mark.parametrize("wrong", [True, "INVALID", 1.0, 32, -1, None])
def test_what_is_no_flags_is_refused(wrong: object) -> None:
    with pytest.raises(TypeError, match=r"traps=.* is not a Flags; join members"):
        as_integer("traps", wrong)  # type: ignore[arg-type]
