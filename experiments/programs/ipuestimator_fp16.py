"""The network on Fashion-MNIST of float32_parameter_updates, trained by an IPUEstimator.

Real TensorFlow builds the graph; the machine executes it, one launch for each epoch.

Source    Graphcore's TensorFlow 1 tutorial on half precision, ipuestimator_fp16.py.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from ipu.experiments.commands.options import bad_input
from ipu.experiments.programs.options import ProgramOptions, options
from ipu.installation import not_installed

if TYPE_CHECKING:
    from ipu.feed.data import Data

__all__ = ["command", "main"]

CLASSES = 10


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("precision", type=click.Choice(["mixed", "float32"]))
@options
def command(precision: str, options: ProgramOptions) -> int:
    """Train by an IPUEstimator on Fashion-MNIST; mixed computes in binary16."""
    from ipu.feed.data import fashion_mnist

    if importlib.util.find_spec("tensorflow") is None:
        raise click.ClickException(not_installed("TensorFlow", "tensorflow"))
    with bad_input():
        data = options.data(fashion_mnist, (28, 28, 1))
        learn = data.learn[: options.limit]
        if len(learn) < options.batch_size:
            raise ValueError(
                f"batch_size={options.batch_size} is more than the {len(learn)} images; use fewer"
            )
    print(f"data: {data}")
    importlib.import_module("ipu.frontends.tensorflow")
    return _train(precision, options, data)


def _train(precision: str, options: ProgramOptions, data: Data) -> int:
    """The exit status of a training."""
    from ipu.frontends.tensorflow.engine.current import choose
    from ipu.frontends.tensorflow.engine.errors import MachineError
    from ipu.frontends.tensorflow.engine.machine import Choices

    choose(Choices(seed=options.seed))
    tf = importlib.import_module("tensorflow")
    per_epoch = len(data.learn[: options.limit]) // options.batch_size
    warm = 0 if options.no_warm_up else 1
    with tf.Graph().as_default():  # TensorFlow 1 builds graphs
        estimator = _estimator(tf.compat.v1, precision, options, per_epoch)
        try:
            estimator.train(
                _input_fn(tf, precision, options, data),
                hooks=[_shown_losses(tf.compat.v1, per_epoch, warm)],
                max_steps=(warm + options.epochs) * per_epoch,
            )
        except MachineError as trap:
            print(f"stopped by an exception: {trap}")
            return 1
    print("Program ran successfully")
    return 0


def _estimator(v1: Any, precision: str, options: ProgramOptions, per_epoch: int) -> Any:
    """With every exception armed and NaN on overflow; the checkpoint folder is its model_dir."""
    from tensorflow.python import ipu

    settings = ipu.config.IPUConfig()
    settings.auto_select_ipus = 1
    bits = settings.floating_point_behaviour
    bits.inv = bits.div0 = bits.oflo = bits.nanoo = True
    if options.use_float16_partials and precision == "mixed":
        settings.matmuls.poplar_options = {"partialsType": "half"}
        settings.convolutions.poplar_options = {"partialsType": "half"}
    config = ipu.ipu_run_config.RunConfig(
        ipu.ipu_run_config.IPURunConfig(per_epoch, settings), tf_random_seed=options.seed
    )
    folder = None if options.checkpoint is None else str(options.checkpoint)
    return ipu.ipu_estimator.IPUEstimator(_model_fn(v1, options), model_dir=folder, config=config)


def _model_fn(v1: Any, options: ProgramOptions) -> Callable[..., Any]:
    """Parameters are binary32 and cast to the format of the images; so are their gradients."""

    def single(getter: Any, name: str, *rest: Any, dtype: Any, **named: Any) -> Any:
        variable = getter(name, *rest, dtype=v1.float32, **named)
        return variable if dtype == v1.float32 else v1.cast(variable, dtype, name=f"{name}_cast")

    def conv(x: Any, name: str) -> Any:
        with v1.variable_scope(name):
            kernel = v1.get_variable("kernel", [3, 3, x.shape[-1], 32], dtype=x.dtype)
            return v1.nn.conv2d(x, kernel, [1, 1, 1, 1], "SAME")

    def network(x: Any) -> Any:
        x = conv(v1.nn.relu(conv(x, "conv1")), "conv2")
        x = v1.reshape(x, [x.shape[0], -1])
        with v1.variable_scope("dense"):
            kernel = v1.get_variable("kernel", [x.shape[-1], CLASSES], dtype=x.dtype)
            zeros = v1.zeros_initializer()
            bias = v1.get_variable("bias", [CLASSES], dtype=x.dtype, initializer=zeros)
            return v1.matmul(x, kernel) + bias

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        with v1.variable_scope("network", use_resource=True, custom_getter=single):
            logits = v1.cast(network(features), v1.float32)
        loss = v1.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
        optimiser = v1.train.AdamOptimizer(options.learning_rate, epsilon=1e-4)
        scale = options.loss_scaling_factor
        pairs = optimiser.compute_gradients(loss * scale)
        train = optimiser.apply_gradients([(g / scale, v) for g, v in pairs])
        return v1.estimator.EstimatorSpec(mode, loss=loss, train_op=train)

    return model_fn


def _input_fn(tf: Any, precision: str, options: ProgramOptions, data: Data) -> Callable[[], Any]:
    """Batches in the stored order, epoch after epoch."""
    learn = data.learn[: options.limit]
    kind = "float16" if precision == "mixed" else "float32"
    pixels, labels = learn.values.astype(kind), learn.labels.astype("int32")

    def input_fn() -> Any:
        images = tf.data.Dataset.from_tensor_slices((pixels, labels))
        return images.batch(options.batch_size, drop_remainder=True).repeat()

    return input_fn


def _shown_losses(v1: Any, per_epoch: int, warm: int) -> Any:
    """A hook that prints the mean loss of each epoch, which is a launch."""

    class LossPrinter(v1.train.SessionRunHook):  # type: ignore[misc]
        def begin(self) -> None:
            self.step = v1.train.get_global_step()

        def before_run(self, run_context: Any) -> Any:
            loss, *_ = run_context.original_args.fetches
            return v1.train.SessionRunArgs([loss, self.step])

        def after_run(self, run_context: Any, run_values: Any) -> None:
            loss, step = run_values.results
            epoch = int(step) // per_epoch + 1 - warm
            print(f"epoch {epoch}: loss {loss:.4f}" if epoch else "Executing warmup run...")

    return LossPrinter()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status."""
    from ipu.experiments.cli import run

    name = "ipuestimator_fp16"
    return run(command, sys.argv[1:] if arguments is None else arguments, name)
