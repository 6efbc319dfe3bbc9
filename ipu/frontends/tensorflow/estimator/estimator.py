"""`IPUEstimator`: trains, evaluates and predicts with a model function.

Graphs, sessions and checkpoints are TensorFlow's; the model function is traced into a program of
the machine.

Source    graphcore/tensorflow, tensorflow/python/ipu/ipu_estimator.py; tensorflow/estimator,
          estimator.py: arguments, checks and messages.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import tensorflow as tf

from ipu.frontends.tensorflow.engine.current import current
from ipu.frontends.tensorflow.estimator.calls import call_input_fn, names
from ipu.frontends.tensorflow.estimator.hooks import InfeedHook, StepHook
from ipu.frontends.tensorflow.estimator.programs import ModelProgram
from ipu.frontends.tensorflow.estimator.run_config import RunConfig
from ipu.frontends.tensorflow.estimator.sessions import (
    check_saving,
    stored_session,
    training_session,
    write_summary,
)
from ipu.frontends.tensorflow.estimator.specs import ModeKeys
from ipu.frontends.tensorflow.facade import watch_sessions
from ipu.frontends.tensorflow.feeds import IPUInfeedQueue, IPUOutfeedQueue
from ipu.frontends.tensorflow.workers.group import Workers
from ipu.frontends.tensorflow.workers.session import SyncHook

__all__ = ["IPUEstimator"]

v1 = tf.compat.v1
_RESERVED = ["input_fn"]
_BATCH_SIZE = "batch_size"


class IPUEstimator:
    """A model function with its checkpoints.

    model_fn             called with features, and with those of labels, mode, params and config
                         that it names; returns an EstimatorSpec or IPUEstimatorSpec.
    model_dir            folder of the checkpoints; without it a temporary one. Workers after the
                         first one write theirs below it, in worker-1, worker-2 …
    config               a RunConfig of `ipu_run_config`.
    params               for the model function and the input functions.
    warm_start_from      folder or checkpoint whose variables a new training starts from.
    train_batch_size, eval_batch_size, predict_batch_size
                         of all replicas together; params["batch_size"] is one replica's share.

    Raises               ValueError for another config, reserved params, and batches that the
                         replicas do not divide; NotImplementedError for several iterations in a
                         launch of several workers.
    """

    #: The kind of its programs.
    _program = ModelProgram

    def __init__(
        self, model_fn: Callable[..., Any], model_dir: str | None = None, config: Any = None,
        params: Mapping[str, Any] | None = None, warm_start_from: str | None = None,
        train_batch_size: int | None = None, eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
    ) -> None:
        if not isinstance(config, RunConfig):
            raise ValueError("`config` must be provided with type `ipu_run_config.RunConfig`")
        _check_params(params)
        watch_sessions()
        self.config, self.params = config, dict(params or {})
        self._model_fn, self._warm_start = model_fn, warm_start_from
        self._sizes = {
            ModeKeys.TRAIN: self._share(train_batch_size, "train", config.train_distribute),
            ModeKeys.EVAL: self._share(eval_batch_size, "eval", config.eval_distribute),
            ModeKeys.PREDICT: self._share(predict_batch_size, "predict", None),
        }
        if any(self._sizes.values()) and _BATCH_SIZE in self.params:
            raise ValueError(
                f"{_BATCH_SIZE} cannot be passed in params when a batch size argument is passed"
            )
        iterations = config.ipu_run_config.iterations_per_loop
        if (config.train_distribute or config.eval_distribute) and iterations > 1:
            raise NotImplementedError(
                f"iterations_per_loop > 1 (got {iterations}) not supported with distribution"
            )
        self.model_dir = model_dir or config.model_dir or tempfile.mkdtemp()
        workers = _workers(config.train_distribute)
        if workers is not None and workers.rank:  # each worker writes its own checkpoints
            self.model_dir = os.path.join(self.model_dir, f"worker-{workers.rank}")
        if not (model_dir or config.model_dir):
            v1.logging.warning("Using temporary folder as model directory: %s", self.model_dir)

    def _share(self, batch: int | None, mode: str, strategy: Any) -> int | None:
        """A replica's part of a batch."""
        if batch is None:
            return None
        workers = 1 if strategy is None else strategy.num_replicas_in_sync
        replicas = self.config.ipu_run_config.num_replicas
        if batch < 1:
            raise ValueError(f"{mode}_batch_size (got {batch}) must be positive")
        if batch % (workers * replicas):
            raise ValueError(
                f"{mode}_batch_size (got {batch}) must be divisible by num_workers * num_replicas "
                f"({workers} * {replicas})"
            )
        return batch // (workers * replicas)

    # Three modes ----------------------------------------------------------------------------

    def train(
        self, input_fn: Callable[..., Any], hooks: Sequence[Any] | None = None,
        steps: int | None = None, max_steps: int | None = None, saving_listeners: Any = None,
    ) -> IPUEstimator:
        """Train for some steps more (steps), or up to a number of steps (max_steps).

        saving_listeners    told of the checkpoints.

        Raises    ValueError for steps that iterations_per_loop does not divide.
        """
        self._check_steps(steps)
        if max_steps is not None and self._step_of_root() >= max_steps:
            v1.logging.info("Skipping training since max_steps has already saved.")
            return self
        check_saving(self.config, saving_listeners)
        workers = _workers(self.config.train_distribute)
        with self._graph(ModeKeys.TRAIN, input_fn) as (program, step):
            loss, train_op = program.training()
            v1.summary.scalar("loss", loss)
            counter = StepHook(
                step, self.config.ipu_run_config.iterations_per_loop, steps, max_steps
            )
            shown = v1.train.LoggingTensorHook(
                {"loss": loss, "step": step}, every_n_iter=self.config.log_step_count_steps
            )
            together = [SyncHook(workers, step)] if workers and workers.size > 1 else []
            first = program.chief_hooks if workers is None or not workers.rank else []
            every = [*together, InfeedHook(program.infeed), *program.hooks, *first, *(hooks or [])]
            every += [shown, counter]
            last = None
            if self._warm_start and self._saved_step() == 0:
                v1.train.warm_start(self._warm_start)
            session = training_session(
                self.config, self.model_dir, every, saving_listeners, workers
            )
            with session:
                while not session.should_stop():
                    last, _ = session.run([loss, train_op])
            v1.logging.info("Loss for final step: %s.", last)
        return self

    def evaluate(
        self, input_fn: Callable[..., Any], steps: int | None = None,
        hooks: Sequence[Any] | None = None, checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Metrics by name, with the mean loss and the global step; a summary of them in eval/.

        name      of this evaluation: its summary lies in eval_NAME/.

        Raises    ValueError without steps, and for steps that iterations_per_loop does not divide.
        """
        self.check_evaluation(steps)
        assert steps is not None
        launches = steps // self.config.ipu_run_config.iterations_per_loop
        with self._graph(ModeKeys.EVAL, input_fn) as (program, step):
            loss, metrics = program.evaluation()
            values = {key: value for key, (value, _) in metrics.items()}
            updates = [update for _, update in metrics.values()]
            fetches = [loss, updates, {} if program.computes_metrics_on_host else values]
            losses, results = [], {}
            path = checkpoint_path or self.latest_checkpoint()
            every = [InfeedHook(program.infeed), *program.hooks, *(hooks or [])]
            session = stored_session(self.config, path, every)
            with session:
                for _ in range(launches):
                    latest, _, results = session.run(fetches)
                    losses.append(latest)
                last = [values, step] if program.computes_metrics_on_host else [{}, step]
                on_host, reached = session.run_step_fn(
                    lambda step_context: step_context.session.run(last)
                )
        results = {**results, **on_host, "loss": np.mean(losses, dtype=np.float32)}
        workers = _workers(self.config.eval_distribute)
        if workers is not None:
            results = {
                k: workers.reduced(np.float32(results[k]), mean=True) for k in sorted(results)
            }
        folder = os.path.join(self.model_dir, f"eval_{name}" if name else "eval")
        write_summary(folder, int(reached), results)
        results["global_step"] = int(reached)
        shown = ", ".join(f"{key} = {value}" for key, value in sorted(results.items()))
        v1.logging.info("Saving dict for global step %d: %s", int(reached), shown)
        return results

    def predict(
        self, input_fn: Callable[..., Any], predict_keys: Sequence[str] | None = None,
        hooks: Sequence[Any] | None = None, checkpoint_path: str | None = None,
        yield_single_examples: bool = True, num_predictions: int | None = None,
    ) -> Iterator[Any]:
        """Predictions one by one, or batch by batch.

        num_predictions    so many; without it the end of the data set is an error of the loop.
        """
        batches = self._predicted(input_fn, predict_keys, checkpoint_path, hooks or [])
        every = batches if not yield_single_examples else _examples(batches)
        return itertools.islice(every, num_predictions)

    def _predicted(
        self, input_fn: Callable[..., Any], keys: Sequence[str] | None, checkpoint: str | None,
        hooks: Sequence[Any],
    ) -> Iterator[Any]:
        with self._graph(ModeKeys.PREDICT, input_fn) as (program, _):
            tensors = program.prediction()
            if keys is not None and isinstance(tensors, dict):
                tensors = {key: tensors[key] for key in _checked_keys(keys, tensors)}
            every = [InfeedHook(program.infeed), *program.hooks, *hooks]
            path = checkpoint or self.latest_checkpoint()
            session = stored_session(self.config, path, every)
            with session:
                while not session.should_stop():
                    yield from _iterations(_joined(session.run(tensors), current().replicas))

    # Sessions -------------------------------------------------------------------------------

    @contextmanager
    def _graph(self, mode: str, input_fn: Callable[..., Any]) -> Iterator[tuple[ModelProgram, Any]]:
        """A graph with the global step, the data set and the program of a mode."""
        run = self.config.ipu_run_config
        if run.ipu_options is not None:
            run.ipu_options.configure_ipu_system()
            current().replicas = run.num_replicas
        params = self._params_of(mode, input_fn)
        with tf.Graph().as_default():
            v1.set_random_seed(self.config.tf_random_seed)
            step = v1.get_variable(
                v1.GraphKeys.GLOBAL_STEP, [], tf.int64, v1.zeros_initializer(), trainable=False,
                use_resource=True,
                collections=[v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.GLOBAL_STEP],
            )
            strategy = self._strategy(mode)
            context = None if strategy is None else strategy.input_context
            dataset = call_input_fn(
                input_fn, mode=mode, params=params, config=self.config, input_context=context
            )
            infeed = IPUInfeedQueue(dataset, prefetch_depth=run.prefetch_depth)
            yield (
                self._program(self._model_fn, self.config, params, infeed, IPUOutfeedQueue()),
                step,
            )

    def _strategy(self, mode: str) -> Any:
        config = self.config
        modes = {ModeKeys.TRAIN: config.train_distribute, ModeKeys.EVAL: config.eval_distribute}
        return modes.get(mode)

    def _params_of(self, mode: str, input_fn: Callable[..., Any]) -> dict[str, Any]:
        size = self._sizes[mode]
        if size is None:
            return dict(self.params)
        if "params" not in names(input_fn):
            raise ValueError(
                f"input_fn must have params argument to receive params['{_BATCH_SIZE}']"
            )
        return {**self.params, _BATCH_SIZE: size}

    def latest_checkpoint(self) -> str | None:
        """The newest checkpoint of model_dir."""
        path: str | None = tf.train.latest_checkpoint(self.model_dir)
        return path

    def get_variable_names(self) -> list[str]:
        """Names of the variables of the newest checkpoint."""
        return [name for name, _ in tf.train.list_variables(self.model_dir)]

    def get_variable_value(self, name: str) -> Any:
        """A variable of the newest checkpoint."""
        return tf.train.load_variable(self.model_dir, name)

    def _step_of_root(self) -> int:
        """The step that a training goes on from: that of the first worker's checkpoint."""
        workers = _workers(self.config.train_distribute)
        step = self._saved_step()
        return step if workers is None else int(workers.of_root(np.int64(step), "global_step"))

    def _saved_step(self) -> int:
        path = self.latest_checkpoint()
        return 0 if path is None else int(tf.train.load_variable(path, "global_step"))

    @property
    def training_workers(self) -> Workers | None:
        """The processes that train together; None for one alone."""
        return _workers(self.config.train_distribute)

    def check_evaluation(self, steps: int | None) -> None:
        """Refuse an evaluation of that many steps."""
        self._check_steps(steps)
        if steps is None:
            raise ValueError("One of `num_steps` or `final_step` must be specified.")

    def _check_steps(self, steps: int | None) -> None:
        iterations = self.config.ipu_run_config.iterations_per_loop
        if steps is not None and steps % iterations:
            raise ValueError(
                f"steps ({steps}) must be a multiple of iterations_per_loop ({iterations})"
            )


def _workers(strategy: Any) -> Workers | None:
    """This process among those of a strategy; None without one."""
    return None if strategy is None else strategy.workers


def _check_params(params: Any) -> None:
    if params is None:
        return
    if not isinstance(params, dict):
        raise ValueError("`params` is expected to be of type `dict`")
    if any(key in params for key in _RESERVED):
        raise ValueError(f"{_RESERVED} are reserved keys but existed in params {params}.")


def _checked_keys(keys: Sequence[str], tensors: Mapping[str, Any]) -> Sequence[str]:
    """Keys of predictions that exist."""
    unknown = [key for key in keys if key not in tensors]
    if unknown:
        raise ValueError(
            f"predict_keys={list(keys)!r}: {unknown[0]!r} is not a prediction of model_fn; use "
            f"{', '.join(sorted(tensors))}"
        )
    return keys


def _joined(stacked: Any, replicas: int) -> Any:
    """Batches of the replicas of an iteration as one batch, in the order of the data set."""
    if isinstance(stacked, dict):
        return {key: _joined(value, replicas) for key, value in stacked.items()}
    if replicas == 1 or stacked.ndim < 3:
        return stacked
    return stacked.reshape(len(stacked), -1, *stacked.shape[3:])


def _iterations(stacked: Any) -> Iterator[Any]:
    """The batches of a launch."""
    if not isinstance(stacked, dict):
        yield from stacked
        return
    for i in range(len(next(iter(stacked.values())))):
        yield {key: value[i] for key, value in stacked.items()}


def _examples(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield from _iterations(batch)
