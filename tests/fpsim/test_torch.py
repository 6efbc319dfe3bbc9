"""fpsim.torch gives the names of the front end, or says what is missing (golden)."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import pytest


def test_names():
    pytest.importorskip("torch", reason="torch is not installed; run: make test-torch")
    import fpsim.torch
    from ipu.frontends.torch import Session, machine

    assert (fpsim.torch.machine, fpsim.torch.Session) == (machine, Session)


def test_without_pytorch_the_import_says_what_to_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "torch" else find(name)
    )
    for name in [n for n in sys.modules if n.startswith("ipu.frontends.torch")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "torch\S*>=2\.13"'):
        importlib.import_module("ipu.frontends.torch")
