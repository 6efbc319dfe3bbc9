"""`IPURunConfig` and `RunConfig`: how an estimator runs.

Source    graphcore/tensorflow, tensorflow/python/ipu/ipu_run_config.py: fields and messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ipu.frontends.tensorflow.settings.config import IPUConfig

__all__ = ["IPURunConfig", "RunConfig"]


@dataclass(frozen=True)
class IPURunConfig:
    """What of an estimator's run concerns the machine.

    iterations_per_loop        iterations of one launch.
    ipu_options                an IPUConfig; the estimator configures the machine with it.
    num_replicas, num_shards   their product is the number of IPUs that ipu_options take.

    Raises                     ValueError where it is not.
    """

    iterations_per_loop: int = 1
    ipu_options: IPUConfig | None = None
    num_replicas: int = 1
    num_shards: int = 1
    ordinal: int = 0
    prefetch_depth: int | None = None

    def __post_init__(self) -> None:
        options = self.ipu_options
        if options is not None and not isinstance(options, IPUConfig):
            raise TypeError(
                f"ipu_options={options!r} is no IPUConfig; use ipu.config.IPUConfig() or "
                "ipu.utils.create_ipu_config()"
            )
        for name in ("iterations_per_loop", "num_replicas", "num_shards"):
            number = getattr(self, name)
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise ValueError(f"{name}={number!r} is not a number of them; use 1 or more")
        wanted = self.num_replicas * self.num_shards
        if wanted > 1 and options is None:
            raise ValueError(
                "IPU configuration requires more than one device, but `ipu_options` is None"
            )
        configured = 1 if options is None else _ipus(options, self.ordinal)
        if wanted != configured:
            raise ValueError(
                f"`IPURunConfig` configured with {wanted} devices ({self.num_replicas} "
                f"num_replicas times {self.num_shards} num_shards), but `IpuOptions` configured "
                f"with {configured} devices"
            )


def _ipus(options: IPUConfig, ordinal: int) -> int:
    """IPUs of the TensorFlow device of that number."""
    ipus = options.auto_select_ipus
    if isinstance(ipus, int):
        return ipus
    return ipus[ordinal] if ipus else 1


@dataclass(frozen=True)
class RunConfig:
    """How an estimator runs.

    master              is read; sessions are local.
    model_dir           folder of the checkpoints.
    save_checkpoints_steps, save_checkpoints_secs, keep_checkpoint_max, log_step_count_steps,
    session_config, tf_random_seed
                        as in tf.estimator.RunConfig.
    train_distribute, eval_distribute
                        strategies of several workers; without eval_distribute each worker
                        evaluates on all data.
    """

    ipu_run_config: IPURunConfig = field(default_factory=IPURunConfig)
    master: str | None = None
    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int = 100
    save_checkpoints_steps: int | None = None
    save_checkpoints_secs: int | None = 600
    session_config: Any = None
    keep_checkpoint_max: int = 5
    keep_checkpoint_every_n_hours: int = 10_000
    log_step_count_steps: int = 100
    train_distribute: Any = None
    eval_distribute: Any = None

    def __post_init__(self) -> None:
        if self.ipu_run_config is None:
            object.__setattr__(self, "ipu_run_config", IPURunConfig())
