"""Notes come once (law)."""

from __future__ import annotations

import warnings

import pytest

from ipu.frontends.tensorflow.settings.notes import forget, note


def test_a_note_comes_once_until_it_is_forgotten():
    forget()
    with pytest.warns(RuntimeWarning, match="one"):
        note("one")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        note("one")
    with pytest.warns(RuntimeWarning, match="two"):
        note("two")
    forget()
    with pytest.warns(RuntimeWarning, match="one"):
        note("one")
