"""Layouts of random words against the oracle's addresses (differential)."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from fpsim.judge.oracle.random import elementwise_R, product_R
from fpsim.kernels.random import words as kernels

SEED, NUMBER = 0x89ABCDEF01234567, (1 << 40) + 3


def top(words, wide):
    """R of 16 bits, or of 32 where an element takes a whole word."""
    return words if wide else words >> 16


@pytest.mark.parametrize("wide", [False, True])
def test_words_of_elements(wide):
    group = kernels.GROUP_WORD if wide else kernels.GROUP_HALF

    @njit
    def fill(words, first, seed, number):
        kernels.fill_words(words, 16, first, words.shape[0] - 16, seed, number, wide)

    words, first = np.zeros(16 + 2 * group, np.uint32), 3 * group
    fill(words, first, np.uint64(SEED), np.uint64(NUMBER))
    assert not words[:16].any()
    words, r = words[16:], 32 if wide else 16
    expected = [elementwise_R(SEED, NUMBER, first + i, r) for i in range(len(words))]
    assert top(words, wide).tolist() == expected


@pytest.mark.parametrize("wide", [False, True])
def test_words_of_neighbouring_outputs(wide):
    @njit
    def fill(words, first, block, seed, number):
        kernels.place_words(words, 16, first, block, seed, number, wide)

    words, per_counter, r = np.zeros(160, np.uint32), 4 if wide else 8, 32 if wide else 16
    fill(words, 7, 2, np.uint64(SEED), np.uint64(NUMBER))
    assert not words[:16].any()
    rows = top(words[16 : 16 + 16 * per_counter], wide).reshape(per_counter, 16)
    for s in range(per_counter):
        expected = [product_R(SEED, NUMBER, 7 + i, 2 * per_counter + s, r) for i in range(16)]
        assert rows[s].tolist() == expected


@pytest.mark.parametrize("number", [NUMBER, 2**64 - 1])
@pytest.mark.parametrize("first", [7, 2**32 - 9])
def test_all_words_of_outputs_from_what_they_have_in_common(first, number):
    """Outputs of the largest numbers, too, beyond which sixteen lanes wrap around."""

    @njit
    def fill(words, states, first, blocks, seed, number):
        kernels.outputs_ready(states, 16, first, seed, number)
        for i in range(blocks.shape[0]):
            kernels.output_words(words, 64 * i, states, 16, blocks[i], seed, number)

    blocks = np.array([0, 1, 2, 2**31 - 2])
    words, states = np.zeros(256, np.uint32), np.zeros(144, np.uint32)
    fill(words, states, first, blocks, np.uint64(SEED), np.uint64(number))
    rows = iter(words.reshape(-1, 16))
    for block in blocks.tolist():
        for s in range(4):
            outputs = [(first + i) % 2**32 for i in range(16)]
            expected = [product_R(SEED, number, i, 4 * block + s, 32) for i in outputs]
            assert next(rows).tolist() == expected


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("first", [0, 2**32 - 70])
def test_words_of_outputs_at_one_place(first, wide):
    """More than a run of outputs, whose numbers wrap around beyond the last one."""

    @njit
    def fill(words, first, n, block, number, seed, operation):
        kernels.words_of_place(words, first, n, block, number, seed, operation, wide)

    per_counter, r, n = 4 if wide else 8, 32 if wide else 16, kernels.RUN + 5
    for s in range(per_counter):
        words = np.zeros(3 * kernels.RUN, np.uint32)
        fill(words, first, n, 1, s, np.uint64(SEED), np.uint64(NUMBER))
        expected = [product_R(SEED, NUMBER, first + i, per_counter + s, r) for i in range(n)]
        assert top(words[:n], wide).tolist() == expected
        assert not words[2 * kernels.RUN :].any()
