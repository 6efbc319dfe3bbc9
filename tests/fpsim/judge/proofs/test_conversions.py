"""Conversions: the specification beside the oracle, the replay beside the kernel (differential);
proofs, and mutants that they refute (law).
"""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("bitwuzla")

from fpsim.elementwise.apply import apply
from fpsim.judge.oracle import convert
from fpsim.judge.proofs import conversions
from fpsim.judge.proofs.compiled import bits_of, drawn_words
from fpsim.judge.proofs.elementwise import replayed
from fpsim.judge.proofs.outcomes import agrees
from fpsim.judge.proofs.replay import TermBuilder, UnknownInstructionError
from fpsim.judge.proofs.terms import Theory
from fpsim.judge.proofs.theorem import PROVED, prove
from fpsim.records.formats import BINARY16, BINARY32, E4M3FN
from fpsim.records.rounding import MODES, SR
from fpsim.records.settings import Settings
from fpsim.state.draws import Draw
from tests.tiers import pick

FORMATS = conversions.narrow_formats()
ROUNDINGS = [*MODES.values(), SR(8), SR(13), SR(16)]
POLICIES = (
    {}, {"overflow": "saturate"}, {"subnormals": "flush_results"}, {"tininess": "before"},
    {"quiet_nan_raises": True}, {"infinite_input": "saturate"},
)


def hard_operands(rng, fmt, n):
    """binary32 codes: any, near values of the format and the middles between them, and special."""
    anything = rng.integers(0, 1 << 32, n, dtype=np.uint64).astype(np.uint32)
    low, high = fmt.emin - fmt.precision - 2, fmt.emax + 2
    exponents = rng.integers(low, high + 1, n)
    digits = rng.integers(1 << fmt.precision, 2 << fmt.precision, n)  # one digit too many
    values = np.ldexp(digits.astype(np.float64), np.maximum(exponents - fmt.precision, -149))
    values = np.minimum(values, np.finfo(np.float32).max)
    near = values.astype(np.float32).view(np.uint32) + rng.integers(-1, 2, n).astype(np.uint32)
    special = np.array([0, 0x7F800000, 0x7FC00000, 0x7F800001, 0x7FFFFFFF, 1], np.uint32)
    codes = np.where(rng.random(n) < 0.3, anything, near)
    codes = np.where(rng.random(n) < 0.02, rng.choice(special, n), codes)
    return codes ^ (rng.integers(0, 2, n, dtype=np.uint32) << np.uint32(31))


def test_the_specification_is_the_oracle():
    rng, theory, checked = np.random.default_rng(5), Theory(), 0
    for fmt in FORMATS:
        for rounding in ROUNDINGS:
            policy = POLICIES[checked % len(POLICIES)]
            settings = Settings(fmt, rounding, **policy)
            for x in hard_operands(rng, fmt, pick(12, 760, 4000)):
                checked += 1
                word = int(rng.integers(1 << 32))
                code, flags = convert(
                    int(x), BINARY32, fmt, conversions.oracle_settings(settings, word)
                )
                outcome = conversions.expected(theory.word(int(x), 32), settings,
                                               theory.word(word, 32))
                bits = theory.word(bits_of(code, fmt), 32)
                assert agrees(bits, theory.word(int(flags), 8), outcome), (fmt, rounding, hex(x))
                other = theory.word(bits_of(code, fmt) ^ 0x00800000, 32)
                assert not agrees(other, theory.word(int(flags), 8), outcome)
    assert checked >= pick(1_500, 100_000, 500_000)


@pytest.mark.parametrize("rounding", pick([MODES["RNE"], SR(8)], ROUNDINGS, ROUNDINGS), ids=str)
def test_the_replay_is_the_kernel(rounding):
    rng, theory = np.random.default_rng(6), Theory(chances=False)
    for fmt in (BINARY16, E4M3FN):
        settings = Settings(fmt, rounding)
        x = hard_operands(rng, fmt, pick(64, 2048, 2048))
        words = drawn_words(-(-x.size // 64), 3, wide=False)[: x.size]
        flags = np.zeros(x.size, np.uint8)
        out, _ = apply(
            "convert", [x.view(np.float32)], settings, element_flags=flags,
            bits=Draw(np.uint64(1), np.uint64(3), None),
        )
        for i, code in enumerate(x):
            word = theory.word(int(words[i]), 32) if settings.rounding.stochastic else None
            operand = theory.word(int(code), 32)
            step = replayed(TermBuilder(theory), "convert", settings, [operand], word)
            got = int(out.view(np.uint32)[i]), int(flags[i])
            assert (step.code.value, step.flags.value) == got, hex(code)


@pytest.mark.parametrize("name", ["convert binary16 RNE", "convert e5m2 SR(8)"])
def test_conversions_are_proved(name):
    (theorem,) = [t for t in conversions.theorems() if t.name == name]
    verdict = prove(theorem)
    assert verdict.status == PROVED
    assert verdict.seconds < 20


def test_no_time_is_no_proof():
    verdict = prove(conversions.conversion(BINARY16, "RNE"), limit=0.01)
    assert verdict.status == "NOT DECIDED"
    assert not verdict.is_proved


def test_unknown_instructions_are_refused():
    with pytest.raises(UnknownInstructionError, match="ashr"):
        _ = TermBuilder(Theory()).ashr
