"""Every option of `IPUConfig`: its name, default, type, and whether the simulation obeys it.

Source    graphcore/tensorflow, tensorflow/python/ipu/config.py: names, defaults and types.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ipu.frontends.tensorflow.settings.choices import (
    DeviceConnectionType,
    MergeRemoteBuffersBehaviour,
    SchedulingAlgorithm,
    SelectionOrder,
    StochasticRoundingBehaviour,
)

__all__ = ["CATEGORIES", "OPTIONS", "AttributeMetadata"]

#: Type of options that hold one number of IPUs or several.
COUNTS = "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]"


@dataclass(frozen=True)
class AttributeMetadata:
    """What is known about an option or a category.

    name              with its categories, as floating_point_behaviour.esr.
    default, type     of an option; None for a category.
    modelled          whether the simulation obeys it; else a note says so where it is changed.

    >>> OPTIONS["io_tiles.num_io_tiles"].check_type(True)
    Traceback (most recent call last):
    ...
    TypeError: Trying to set io_tiles.num_io_tiles to True, but it must be of type int
    """

    name: str
    doc: str
    default: Any = None
    type: str | None = None
    modelled: bool = True
    deprecated_msg: str | None = None

    @property
    def deprecated(self) -> bool:
        """Whether the option is deprecated."""
        return self.deprecated_msg is not None

    def check_type(self, value: object) -> None:
        """Refuse a value of another type; a subclass is another type.

        Raises    TypeError.
        """
        if not self._has_type(value):
            raise TypeError(
                f"Trying to set {self.name} to {value}, but it must be of type {self.type}"
            )

    def _has_type(self, value: object) -> bool:
        if self.type != COUNTS:
            return type(value) is type(self.default)
        numbers = value if isinstance(value, list | tuple) else [value]
        return all(type(number) is int for number in numbers)


def _table(*rows: tuple[str, Any, str]) -> dict[str, AttributeMetadata]:
    """Options by name, from rows of name, default and description."""
    return {
        name: AttributeMetadata(
            name, doc, default, type(default).__name__, modelled=name in MODELLED,
            deprecated_msg=_DEPRECATED.get(name),
        )
        for name, default, doc in rows
    }


#: Options that the simulation obeys, or that change nothing in it by their meaning.
MODELLED = {
    "allow_recompute", "floating_point_behaviour.inv", "floating_point_behaviour.div0",
    "floating_point_behaviour.oflo", "floating_point_behaviour.nanoo",
    "floating_point_behaviour.esr", "floating_point_behaviour.set_all",
    "experimental.multi_replica_distribution.process_count",
    "experimental.multi_replica_distribution.process_index",
    "matmuls.poplar_options", "convolutions.poplar_options", "norms.use_stable_statistics",
    "experimental.enable_prng_stability", "io_tiles.place_ops_on_io_tiles",
}

_DEPRECATED = {
    "optimizations.enable_fast_math": (
        "'enable_fast_math' has been moved to 'optimizations.math.fast'. "
        "It will be removed from this location in a future release."
    )
}

CATEGORIES = {
    "convolutions": "Convolutions.",
    "device_connection": "When a program attaches to the machine.",
    "experimental": "Options that may change.",
    "experimental.multi_replica_distribution": "Processes that share the replicas of a program.",
    "floating_point_behaviour": "Exceptions and rounding.",
    "io_tiles": "Tiles that only transfer.",
    "ipu_model": "The vendor's own model of the machine.",
    "matmuls": "Matrix products.",
    "norms": "Normalisations.",
    "norms.experimental": "Options of normalisations that may change.",
    "optimizations": "What the compiler may rearrange.",
    "optimizations.math": "Algebraic simplification.",
    "pooling": "Pooling.",
    "scheduling": "The order of instructions.",
    "slices": "Slices.",
}

OPTIONS = _table(
    ("allow_recompute", False, "Recompute activations in the backward pass; no bit changes."),
    ("selection_order", SelectionOrder.AUTO, "Order in which IPUs are taken."),
    ("serialization_output_folder", "", "Where executables are written."),
    ("compilation_poplar_options", {}, "Options of Poplar's compiler."),
    ("gcl_poplar_options", {}, "Options of the communication library."),
    ("convolutions.poplar_options", {}, "partialsType: float or half."),
    ("device_connection.type", DeviceConnectionType.ALWAYS, "When to attach to the machine."),
    ("device_connection.version", "", "Version of the IPU: ipu1, ipu2 or nothing."),
    ("device_connection.enable_remote_buffers", False, "Assume that there is remote memory."),
    ("slices.poplar_options", {}, "Options of slices."),
    ("experimental.always_rearrange_copies_on_the_host", False, "Who rearranges streamed data."),
    ("experimental.enable_remote_buffer_embedding", False, "Embeddings in remote memory."),
    ("experimental.enable_prng_stability", False, "Replicas draw equal random bits in updates."),
    ("experimental.multi_replica_distribution.process_index", 0, "Number of this process."),
    ("experimental.multi_replica_distribution.process_count", 0, "Processes; 0: one alone."),
    ("floating_point_behaviour.inv", False, "Stop at an invalid operation."),
    ("floating_point_behaviour.div0", False, "Stop at a division by zero."),
    ("floating_point_behaviour.oflo", False, "Stop at an overflow."),
    ("floating_point_behaviour.esr", StochasticRoundingBehaviour.OFF, "Stochastic rounding."),
    ("floating_point_behaviour.nanoo", False, "NaN on overflow; else the largest number."),
    ("floating_point_behaviour.set_all", False, "All five of them, when configured."),
    ("io_tiles.num_io_tiles", 0, "Tiles that only transfer."),
    ("io_tiles.place_ops_on_io_tiles", False, "Operations of feeds run there."),
    ("io_tiles.available_memory_proportion", 0.9, "Share of their memory for data."),
    ("ipu_model.compile_ipu_code", True, "Compile code for the model."),
    ("ipu_model.tiles_per_ipu", 0, "Tiles of the model; 0: those of the version."),
    ("ipu_model.version", "ipu2", "Version of the model: ipu1 or ipu2."),
    ("matmuls.clear_pass_type", False, "Plan products without their pass."),
    ("matmuls.poplar_options", {}, "partialsType: float or half."),
    ("norms.use_stable_statistics", False, "Subtract the mean before the variance."),
    ("norms.experimental.distributed_batch_norm_replica_group_size", 1, "Replicas of a batch."),
    ("optimizations.math.fast", False, "Reassociate sums and products."),
    ("optimizations.math.dot_strength", True, "Products without a sum by element."),
    ("optimizations.prefetch_data_streams", True, "Read data ahead."),
    ("optimizations.combine_embedding_lookups", False, "One lookup for several of one tensor."),
    ("optimizations.combine_matmuls", False, "One product for several with one operand."),
    ("optimizations.enable_graph_outlining", True, "Code of equal operations once."),
    ("optimizations.merge_infeed_io_copies", True, "One copy for several inputs."),
    ("optimizations.maximum_cross_replica_sum_buffer_size", 0, "Bytes that wait for a sum."),
    ("optimizations.maximum_reduce_scatter_buffer_size", 0, "Bytes that wait to be scattered."),
    ("optimizations.maximum_inter_ipu_copies_buffer_size", 0, "Bytes that wait for a copy."),
    ("optimizations.maximum_send_recv_cluster_size", 0, "Bytes that wait for the host."),
    ("optimizations.maximum_reduce_many_buffer_size", 0, "Bytes that wait for reductions."),
    ("optimizations.maximum_all_gather_buffer_size", 0, "Bytes that wait to be gathered."),
    ("optimizations.minimum_remote_tensor_size", 128, "Smaller tensors stay on the chip."),
    ("optimizations.merge_remote_buffers", MergeRemoteBuffersBehaviour.IF_BENEFICIAL, "Merge."),
    ("optimizations.enable_gather_simplifier", True, "Simplify lookups."),
    ("optimizations.triangular_solve_expander_block_size", 0, "Block of triangular solvers."),
    ("optimizations.cholesky_block_size", 0, "Block of Cholesky factorisations."),
    ("optimizations.enable_fast_math", False, "See optimizations.math.fast."),
    ("optimizations.enable_dynamic_slice_replacement", True, "Slices at run time as lookups."),
    ("pooling.poplar_options", {}, "Options of pooling."),
    ("scheduling.algorithm", SchedulingAlgorithm.CHOOSE_BEST, "How instructions are ordered."),
    ("scheduling.maximum_scheduler_lookahead_depth", 5, "Of LOOK_AHEAD."),
    ("scheduling.maximum_scheduler_search_space_size", 64, "Of LOOK_AHEAD."),
)
OPTIONS |= {
    name: AttributeMetadata(name, doc, [], COUNTS)
    for name, doc in (
        ("auto_select_ipus", "IPUs of each TensorFlow device; one number is one device."),
        ("select_ipus", "Numbers of the machine's devices, one IPU each here."),
    )
}
