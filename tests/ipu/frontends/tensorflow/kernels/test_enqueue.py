"""Elements of several replicas (law)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ipu.frontends.tensorflow.framework import configured, ipu, machine, session, tf


@pytest.mark.parametrize(("ipus", "shape"), [(1, (3, 2)), (2, (3, 2, 2))])
def test_replicas_lie_side_by_side(ipus, shape):
    with machine(), session() as run:
        configured(ipus=ipus)
        rows = np.arange(3 * ipus * 2, dtype=np.float32).reshape(-1, 2)
        infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices(rows))
        outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue()
        done = ipu.ipu_compiler.compile(
            lambda: ipu.loops.repeat(3, lambda x: outfeed.enqueue({"x": x + x}), [], infeed)
        )
        results = outfeed.dequeue()
        run.run(infeed.initializer)
        run.run(done)
        actual = run.run(results)["x"]
        run.run(infeed.deleter)
    np.testing.assert_array_equal(actual, 2 * rows.reshape(shape))
