"""Names that a module of the vendor has and ours lacks, in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NoReturn

__all__ = ["absent", "no_name", "refusing"]


def no_name(module: str, name: str, names: Iterable[str]) -> str:
    """The sentence on a name that a module lacks; names are those that it has.

    >>> no_name("ipu.loops", "for_loop", ["repeat", "while_loop"])
    "ipu.loops has no 'for_loop' here; there are repeat, while_loop"
    """
    return f"{module} has no {name!r} here; there are {', '.join(names)}"


def refusing(
    module: str, missing: Collection[str], names: Collection[str]
) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module that lacks some of the vendor's names.

    Raises    NotImplementedError for these, AttributeError for other ones.
    """

    def refuse(name: str) -> NoReturn:
        if name in missing:
            raise NotImplementedError(
                f"{module}.{name} is not modelled; there are {', '.join(names)}"
            )
        raise AttributeError(no_name(module, name, names))

    return refuse


#: Modules of the vendor that are not modelled, and what a program can use.
_ABSENT = {
    "all_to_all_op": "cross_replica_ops has sums and means over replicas",
    "application_compile_op": "call strategy.run, or ipu_compiler.compile in TensorFlow 1",
    "autoshard": "name the stages, with pipelining_ops.pipeline or keras.ipu.PipelineStage",
    "embedded_runtime": "call strategy.run, or ipu_compiler.compile in TensorFlow 1",
    "embedding_ops": "use tf.nn.embedding_lookup or tf.gather",
    "f8_ops": "choose formats with fpsim tf --policy",
    "functional_ops": "call the function: where it is outlined changes no bit",
    "image_ops": "use tf.image in the data set",
    "rnn_ops": "use tf.keras.layers.LSTM or GRU",
    "serving": "programs are not exported; run them with fpsim tf",
    "sharding": "use scopes.ipu_shard",
    "slicing_ops": "use tf.slice, or an index of a tensor",
    "statistics_ops": "use tf.histogram_fixed_width",
    "summary_ops": "use fpsim tf --report",
    "vertex_edsl": "write it with TensorFlow's operations",
    "within_replica_ops": "cross_replica_ops has sums and means over replicas",
    "horovod.keras": "train by fit in the scope of a PopDistStrategy under fpsim poprun",
    "horovod.tensorflow.keras": "train by fit in the scope of a PopDistStrategy under fpsim poprun",
    "ipu_tensorflow_addons.keras.optimizers": "use tf.keras.optimizers, or ALSOptimizer of "
                                              "tf.keras.ipu.optimizers",
    "ipu_tensorflow_addons.v1": "use tf.compat.v1.train",
}


def absent(name: str) -> str | None:
    """The sentence on a module that is not modelled; None for another one.

    >>> absent("tensorflow.python.ipu.embedding_ops")
    'tensorflow.python.ipu.embedding_ops is not modelled; use tf.nn.embedding_lookup or tf.gather'
    """
    key = name.rpartition(".")[2] if name.startswith("tensorflow.python.ipu.") else name
    instead = _ABSENT.get(key)
    return None if instead is None else f"{name} is not modelled; {instead}"
