"""Exporters of an EvalSpec (golden messages)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.estimator.exporters import checked_exporters
from tests.ipu.frontends.tensorflow.framework import tf


class Named(tf.estimator.Exporter):
    """An exporter that exports nothing."""

    def __init__(self, name):
        self._name = name

    @property
    def name(self):
        """Of the folder."""
        return self._name

    def export(self, **_):
        """Export nothing."""


def test_one_several_or_none():
    a, b = Named("a"), Named("b")
    assert checked_exporters(None) == checked_exporters([]) == ()
    assert checked_exporters(a) == (a,)
    assert checked_exporters(iter([a, b])) == (a, b)


@pytest.mark.parametrize("value", [3, [3], [Named("a"), None]])
def test_other_things_are_refused(value):
    with pytest.raises(TypeError, match="must be an Exporter, an iterable of Exporter, or `None`"):
        checked_exporters(value)


@pytest.mark.parametrize(
    ("names", "text"),
    [(["a", "a"], "must have unique names"), (["a", ""], "cannot have a name that is `None` or"),
     ([3], "must have a string name. Given: <class 'int'>")],
)
def test_names_are_texts_of_their_own(names, text):
    with pytest.raises(ValueError, match=text):
        checked_exporters([Named(name) for name in names])


def test_exporters_of_graphs_for_serving_are_refused():
    for name in ("BestExporter", "FinalExporter", "LatestExporter"):
        with pytest.raises(NotImplementedError, match=f"{name} writes a SavedModel .* your own"):
            getattr(tf.estimator, name)
