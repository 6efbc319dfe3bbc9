"""fpsim.torch gives the names of the front end (golden)."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")


def test_names():
    import fpsim.torch
    from ipu.frontends.torch import Session, machine

    assert (fpsim.torch.machine, fpsim.torch.Session) == (machine, Session)
