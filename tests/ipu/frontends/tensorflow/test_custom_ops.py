"""Compiled code is refused by a sentence, where it is called (golden)."""

from __future__ import annotations

import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, tf


@pytest.mark.parametrize("name", ["precompiled_user_op", "cpu_user_operation"])
def test_a_library_cannot_be_executed(name):
    with pytest.raises(NotImplementedError, match=f"{name}: library_path='lib.so' .*; write it"):
        getattr(ipu.custom_ops, name)([tf.constant(1.0)], "lib.so", outs={"output_types": []})


def test_an_expression_cannot_be_fused():
    def square(x):
        return x * x

    with pytest.raises(NotImplementedError, match="square becomes a fused codelet"):
        ipu.custom_ops.codelet_expression_op(square, tf.constant(1.0))
