"""Kernels find the usual status and leave the one that was there (law)."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from numba.core import event
from numba.core.errors import TypingError

from fpsim.kernels.compiling import cache_folder, compiled
from fpsim.kernels.status import exchange_status
from fpsim.kernels.status_register import FLAG_BITS, HAS_STATUS, TOWARD_ZERO, USUAL
from tests.processors import FLUSH


def _halve(x):
    x[0] *= np.float32(0.5)
    if x[0] == 0:
        return 0  # two exits, both restore
    return 1


halve = compiled(_halve)


@pytest.mark.skipif(not HAS_STATUS, reason="no status register that is known")
@pytest.mark.parametrize("start", [2.0**-126, 0.0])
def test_modes_and_flags_are_restored(start):
    x = np.array([start], np.float32)
    halve(x.copy())
    strange = USUAL | FLUSH | TOWARD_ZERO | 1 << FLAG_BITS[1]
    before = exchange_status(strange)
    try:
        result = halve(x)
    finally:
        after = exchange_status(before)
    assert after == strange
    assert x[0] == np.float32(start / 2)  # subnormal: not flushed inside
    assert result == (start != 0)


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_rests_while_a_kernel_is_compiled_and_is_left_as_it_was(collects):
    during = []
    listener = event.RecordingListener()
    listener.on_start = lambda _: during.append(gc.isenabled())
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with event.install_listener("numba:run_pass", listener):
            compiled(lambda x: x + 1)(1)
            with pytest.raises(TypingError):
                compiled(lambda x: x + unknown)(1)  # noqa: F821
        after = gc.isenabled()
    finally:
        (gc.enable if before else gc.disable)()
    assert after == collects
    assert not any(during)
    assert during


def test_the_folder_is_named_after_the_sources(monkeypatch, tmp_path):
    monkeypatch.setenv("FPSIM_CACHE_DIR", str(tmp_path))
    cache_folder.cache_clear()
    try:
        folder = cache_folder()
    finally:
        cache_folder.cache_clear()
    assert folder.parent.parent == tmp_path
    assert folder.name.startswith("kernels-")
