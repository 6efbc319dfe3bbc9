"""Missing names: two kinds of refusals, each with the names that are there (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow.framework import ipu

from ipu.frontends.tensorflow.missing import no_name, refusing  # isort: skip


def test_what_the_vendor_has_is_not_modelled_and_other_names_are_not_there():
    refuse = refusing("ipu.room", {"chair"}, ["table", "lamp"])
    with pytest.raises(NotImplementedError, match=r"^ipu\.room\.chair is not modelled; ther"):
        refuse("chair")
    with pytest.raises(AttributeError, match=no_name("ipu.room", "stool", ["table", "lamp"])):
        refuse("stool")


@pytest.mark.parametrize("module", [ipu.nn_ops, ipu.keras.layers])
def test_modules_refuse_by_it(module):
    assert "missing.py" in module.__getattr__.__code__.co_filename
    assert not hasattr(module, "__wrapped__")
