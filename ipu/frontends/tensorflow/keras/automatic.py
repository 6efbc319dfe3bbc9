"""`ALSOptimizer`: the automatic loss scale of Keras, by the rule of `ipu.learn.loss_scale.keras`.

The loss is multiplied by the scale in its own format, gradients are divided in theirs. Histogram,
count and scale are variables of the optimiser; the nodes that change them compute on the host's
side of the graph, as whole numbers and powers of two.

Source    graphcore/keras, keras/ipu/optimizers/als_optimizer.py: arguments, order of the updates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from fpsim import Context
from fpsim.records.formats import BINARY16
from ipu.frontends.tensorflow.engine.node import marked
from ipu.frontends.tensorflow.keras.wrapping import Wrapper
from ipu.frontends.tensorflow.operations.capture import active_capture
from ipu.frontends.tensorflow.training.map_gradient import Pairs
from ipu.learn.loss_scale import EdgeHistogram, KerasLossScale, Statistic

__all__ = ["ALSOptimizer"]

_HALVES = Context(BINARY16)


class ALSOptimizer(Wrapper):
    """Scales the loss by a factor that follows a histogram of float16 gradients.

    initial_loss_scaling_factor, increase_factor, max_loss_scaling_factor
                          powers of two; the scale moves by increase_factor inside [1, max).
    update_frequency      updates between two looks at the histogram.
    accumulate_statistics_over_update_period
                          count at every step, else only at those that look.
    ratio_threshold       share of large gradients above which the scale falls.
    captured_grads_only   count the gradients of layers that capture, not those of variables.
    lpf_alpha             share of new counts that is left out.
    histogram_bin_edge    from which a gradient counts as large.

    Raises    ValueError for numbers out of range; TypeError for another kind of optimiser.
    """

    def __init__(
        self, opt: Any, initial_loss_scaling_factor: float = 1, update_frequency: int = 8,
        increase_factor: float = 2, max_loss_scaling_factor: float = 32768,
        accumulate_statistics_over_update_period: bool = True, ratio_threshold: float = 10e-6,
        captured_grads_only: bool = False, lpf_alpha: float = 0.0,
        histogram_bin_edge: float = 2**13, name: str = "ALSOptimizer",
    ) -> None:
        super().__init__(opt, name)
        self._rule = KerasLossScale(
            float(initial_loss_scaling_factor), frequency=update_frequency,
            increase=float(increase_factor), largest=float(max_loss_scaling_factor),
            accumulate=accumulate_statistics_over_update_period, threshold=ratio_threshold,
            filter=lpf_alpha, edge=float(histogram_bin_edge),
        )
        self._captured_only = captured_grads_only
        # Counts of binary64 stay with the host: no format of the machine rounds them.
        self._histogram = tf.Variable([0.0, 0.0], False, dtype=tf.float64, name="histogram")
        self._count = tf.Variable(0, False, dtype=tf.int32, name="lsf_update_counter")
        self._scale = tf.Variable(
            float(initial_loss_scaling_factor), False, dtype=tf.float32, name="loss_scaling_factor"
        )

    # State ----------------------------------------------------------------------------------

    @property
    def loss_scaling_factor(self) -> Any:
        """The scale."""
        return tf.convert_to_tensor(self._scale)

    @property
    def histogram(self) -> Any:
        """Counts of float16 gradients below the edge, and from it on."""
        return tf.cast(self._histogram, tf.float32)

    @property
    def normalized_histogram(self) -> Any:
        """The counts as shares of their sum."""
        return self.histogram / tf.reduce_sum(self.histogram)

    @property
    def update_counter(self) -> Any:
        """Updates since the histogram was looked at."""
        return tf.convert_to_tensor(self._count)

    def reset(self) -> None:
        """The scale, the counter and the histogram are those of the start."""
        assert self._rule.initial is not None
        self._histogram.assign([0.0, 0.0])
        self._count.assign(0)
        self._scale.assign(self._rule.initial)

    # A step ---------------------------------------------------------------------------------

    def get_scaled_loss(self, loss: Any) -> Any:
        """The loss times the scale, in the loss's type."""
        return loss * tf.cast(self._scale, loss.dtype)

    def get_unscaled_gradients(self, grads: Any) -> Any:
        """Count scaled gradients in the histogram, and divide them by the scale.

        grads    a gradient, or a list of them.
        """
        several = grads if isinstance(grads, list | tuple) else [grads]
        counted = [] if self._captured_only else self._counted(several)
        with tf.control_dependencies(counted):
            divided = [
                None if g is None else g / tf.cast(self._scale.read_value(), g.dtype)
                for g in several
            ]
        return divided if isinstance(grads, list | tuple) else divided[0]

    def compute_gradients(self, loss: Any, var_list: Any, tape: Any = None) -> Pairs:
        """Gradients of the scaled loss, divided by the scale."""
        tape = tf.GradientTape() if tape is None else tape
        with tape:
            value = self.get_scaled_loss(loss() if callable(loss) else loss)
        pairs = super().compute_gradients(value, var_list, tape)
        gradients = self.get_unscaled_gradients([g for g, _ in pairs])
        return list(zip(gradients, (v for _, v in pairs), strict=True))

    def apply_gradients(self, grads_and_vars: Any, captured_grads: Any = None, **named: Any) -> Any:
        """Move the scale where it is time, and apply the gradients.

        captured_grads    scaled gradients by tag; None: those that the layers have captured.
        """
        if captured_grads is None:
            capture = active_capture()
            captured_grads = {} if capture is None else capture.captured_gradients
        with tf.control_dependencies(self._counted(tf.nest.flatten(dict(captured_grads)))):
            moved = self._moved()
        with tf.control_dependencies(moved):
            return super().apply_gradients(grads_and_vars, **named)

    def _counted(self, gradients: Any) -> list[Any]:
        """The node that adds gradients to the histogram; other types than float16 have none."""
        halves = [g for g in gradients if g is not None and g.dtype == tf.half]
        if not halves:
            return []
        counts = self._on_host(self._add, [self._histogram, self._count, *halves], [tf.float64])
        return [self._histogram.assign(tf.reshape(counts[0], (2,)))]

    def _moved(self) -> list[Any]:
        state = [self._histogram, self._count, self._scale]
        variables = (self._histogram, self._count, self._scale)
        values = self._on_host(self._move, state, [tf.float64, tf.int32, tf.float32])
        return [
            variable.assign(tf.reshape(value, variable.shape))
            for variable, value in zip(variables, values, strict=True)
        ]

    def _on_host(self, function: Any, variables: Any, types: Any) -> list[Any]:
        """A node that computes with whole numbers and powers of two."""
        with marked(direction="optimizer"):
            values = [tf.convert_to_tensor(variable) for variable in variables]
            results = tf.numpy_function(function, values, types)
        return list(results) if isinstance(results, list | tuple) else [results]

    # The rule -------------------------------------------------------------------------------

    def _at(self, histogram: Any, count: Any, scale: Any = 1.0) -> KerasLossScale:
        lower, upper = (float(n) for n in histogram)
        return replace(self._rule, factor=float(scale), count=int(count), histogram=(lower, upper))

    def _add(self, histogram: Any, count: Any, *gradients: Any) -> NDArray[np.float64]:
        rule = self._at(histogram, count)
        statistic = rule.statistic()
        if isinstance(statistic, EdgeHistogram):
            for gradient in gradients:
                statistic.add(_HALVES.wrap(gradient.astype(BINARY16.carrier)))
        return np.asarray(rule.counted(statistic), np.float64)

    def _move(
        self, histogram: Any, count: Any, scale: Any
    ) -> tuple[NDArray[np.float64], np.int32, np.float32]:
        later = self._at(histogram, count, scale).successor([], Statistic())
        return (
            np.asarray(later.histogram, np.float64), np.int32(later.count),
            np.float32(later.factor),
        )

    def get_config(self) -> dict[str, Any]:
        """What `from_config` builds the optimiser from."""
        rule = self._rule
        return {
            **super().get_config(), "initial_loss_scaling_factor": rule.initial,
            "update_frequency": rule.frequency, "increase_factor": rule.increase,
            "max_loss_scaling_factor": rule.largest,
            "accumulate_statistics_over_update_period": rule.accumulate,
            "ratio_threshold": rule.threshold, "captured_grads_only": self._captured_only,
            "lpf_alpha": rule.filter, "histogram_bin_edge": rule.edge,
        }
