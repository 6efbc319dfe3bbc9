"""Gradients mapped (golden: the vendor's test)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import ipu, session, tf

v1 = tf.compat.v1


@pytest.mark.source("graphcore/tensorflow, map_gradient_optimizer_test.py")
def test_a_function_of_gradient_and_variable():
    with session() as run:
        initial = v1.constant_initializer
        w = [v1.get_variable(f"w{i}", [], initializer=initial(i)) for i in (1, 2, 3)]
        unused = v1.get_variable("unused", [])
        loss = 5 * w[0] + 4 * w[1] + 3 * w[2]
        opt = ipu.optimizers.MapGradientOptimizer(
            v1.train.GradientDescentOptimizer(1.0), lambda g, v: g + 0.01 * v
        )
        pairs = opt.compute_gradients(loss, [*w, unused])
        run.run(v1.global_variables_initializer())
        np.testing.assert_allclose(run.run([g for g, _ in pairs[:3]]), [5.01, 4.02, 3.03], 1e-6)
        assert pairs[3][0] is None


def test_what_maps_is_a_function():
    with pytest.raises(TypeError, match="gradient_mapping_function=3 is not a function"):
        ipu.optimizers.MapGradientOptimizer(v1.train.GradientDescentOptimizer(1.0), 3)
