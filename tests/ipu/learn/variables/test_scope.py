"""Variable scopes: the tutorial's rules, row by row (golden)."""

from __future__ import annotations

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.learn.nn import dense
from ipu.learn.tensor import Tensor
from ipu.learn.variables import (
    AUTO_REUSE,
    fp32_parameter_getter,
    get_variable,
    variable_scope,
)


@pytest.mark.source("S4-25")
def test_only_resource_variables_run(variables):
    with (
        variable_scope("a"),
        pytest.raises(ValueError, match="use_resource=False for variable a/w"),
    ):
        get_variable("w", [1])
    with variable_scope("b", use_resource=True), variable_scope("c"):
        get_variable("w", [1])


@pytest.mark.source("S4-26")
def test_two_layers_of_one_name_are_refused(variables):
    x = Tensor(variables.device.from_host(np.ones((1, 2)), BINARY16), variables.device)
    dense(x, 3, "first")
    with pytest.raises(ValueError, match="first/weights exists already; give the layer another"):
        dense(x, 3, "first")


@pytest.mark.source("S4-27")
@pytest.mark.parametrize("fmt", [BINARY16, BINARY32])
@pytest.mark.parametrize("getter", [None, fp32_parameter_getter])
def test_layers_compute_in_the_format_of_their_input(variables, fmt, getter):
    x = Tensor(variables.device.from_host(np.ones((1, 2)), fmt), variables.device)
    with variable_scope("all_vars", use_resource=True, custom_getter=getter):
        assert dense(x, 3, "layer").dtype == fmt
    expected = BINARY32 if getter else fmt
    assert {v.dtype for v in variables.values()} == {expected}
    assert [v.shape for v in variables.trainable] == [(2, 3), (3,)]


def test_reuse_shares_and_demands(variables):
    with variable_scope("a", use_resource=True):
        variable = get_variable("w", [2])
    with variable_scope("a", use_resource=True, reuse=True):
        assert get_variable("w", [2]) is variable
        with pytest.raises(ValueError, match="a/v does not exist"):
            get_variable("v", [2])
        with pytest.raises(ValueError, match=r"shape=\(3,\) for a/w, which has \(2,\)"):
            get_variable("w", [3])
        with pytest.raises(ValueError, match="dtype=binary16 for a/w, which is binary32"):
            get_variable("w", [2], BINARY16)
    with variable_scope("a", use_resource=True, reuse=AUTO_REUSE):
        get_variable("v", [2])
        assert get_variable("v", [2]) is variables["a/v"]


def test_reuse_holds_in_inner_scopes(variables):
    with (
        variable_scope("a", use_resource=True, reuse=True),
        variable_scope("b", reuse=False),
        pytest.raises(ValueError, match="does not exist"),
    ):
        get_variable("w", [1])


def test_reuse_is_inherited_unless_a_scope_chooses_to_reuse(variables):
    """TensorFlow 1: reuse = reuse or that of the outer scope."""
    with variable_scope("a", use_resource=True, reuse=AUTO_REUSE):
        for _ in range(2):
            with variable_scope("b", reuse=False):
                get_variable("w", [1])
    with (
        variable_scope("a", use_resource=True, reuse=True),
        variable_scope("c", reuse=AUTO_REUSE),
    ):
        get_variable("w", [1])
    assert list(variables) == ["a/b/w", "a/c/w"]


def test_scopes_end_also_when_an_error_leaves_them(variables):
    with pytest.raises(RuntimeError, match="stop"), variable_scope("a", use_resource=True):
        raise RuntimeError("stop")
    with variable_scope("b", use_resource=True) as path:
        assert path == "b"


def test_layers_outside_of_a_model_are_told_what_to_open():
    with pytest.raises(RuntimeError, match="open a block first: with Variables"):
        get_variable("w", [1])
