"""Vendors' names: ours where nobody else has them, only while a program runs (golden)."""

from __future__ import annotations

import importlib
import sys

import pytest

from ipu.frontends import popdist as ours
from ipu.frontends.processes.vendor_names import vendor_names


def test_a_free_name_is_ours_while_a_program_runs():
    with vendor_names():
        assert importlib.import_module("popdist") is ours
        assert importlib.import_module("popdist.environment") is ours.environment
    assert "popdist" not in sys.modules
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("popdist")


def test_modules_that_ours_lacks_are_missing():
    with vendor_names(), pytest.raises(ModuleNotFoundError, match=r"popdist\.nothing"):
        importlib.import_module("popdist.nothing")


def test_an_installed_package_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "popdist.py").write_text("WHOSE = 'theirs'\n")
    monkeypatch.syspath_prepend(tmp_path)
    with vendor_names():
        assert importlib.import_module("popdist").WHOSE == "theirs"
    assert sys.modules.pop("popdist").WHOSE == "theirs"
