"""Configuration by functions, as programs wrote it before `IPUConfig`.

`create_ipu_config` gives an `IPUConfig`; the other functions change it and return it. Its own
arguments are those of profiling and of the compiler: they are read, and a note says which of them
change nothing here.

Source    graphcore/tensorflow, branch r1.15, tensorflow/python/ipu/utils.py.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from ipu.frontends.tensorflow.settings.choices import (
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from ipu.frontends.tensorflow.settings.config import IPUConfig, configure_ipu_system
from ipu.frontends.tensorflow.settings.notes import note

__all__ = [
    "auto_select_ipus", "configure_ipu_system", "create_ipu_config", "select_ipus",
    "set_convolution_options", "set_floating_point_behaviour_options", "set_matmul_options",
    "set_norm_options", "set_recomputation_options",
]

#: Arguments of `create_ipu_config` that are options now.
_RENAMED = {
    "always_rearrange_copies_on_the_host": "experimental.always_rearrange_copies_on_the_host",
    "merge_infeed_io_copies": "optimizations.merge_infeed_io_copies",
    "max_cross_replica_sum_buffer_size": "optimizations.maximum_cross_replica_sum_buffer_size",
    "max_reduce_scatter_buffer_size": "optimizations.maximum_reduce_scatter_buffer_size",
    "max_inter_ipu_copies_buffer_size": "optimizations.maximum_inter_ipu_copies_buffer_size",
    "max_send_recv_cluster_size": "optimizations.maximum_send_recv_cluster_size",
    "minimum_remote_tensor_size": "optimizations.minimum_remote_tensor_size",
    "gather_simplifier": "optimizations.enable_gather_simplifier",
    "prefetch_data_streams": "optimizations.prefetch_data_streams",
    "selection_order": "selection_order",
    "enable_experimental_remote_buffer_embedding": "experimental.enable_remote_buffer_embedding",
}
#: Those about profiles and reports, which the simulation writes in its own way.
_PROFILING = (
    "profiling", "enable_ipu_events", "use_poplar_text_report", "use_poplar_cbor_report",
    "profile_execution", "enable_poplar_serialized_graph", "report_every_nth_execution",
    "max_report_size", "report_directory", "scheduler_selection",
    "disable_graph_convolution_caching", "disable_graph_outlining", "retain_control_dependencies",
)


def create_ipu_config(**arguments: Any) -> IPUConfig:
    """A config with the defaults of the machine, changed by the arguments of the old function.

    Raises    TypeError for an argument that it did not have.

    >>> create_ipu_config(max_cross_replica_sum_bufer_size=1)
    Traceback (most recent call last):
    ...
    TypeError: create_ipu_config() got an unexpected keyword argument \
'max_cross_replica_sum_bufer_size'. Did you mean 'max_cross_replica_sum_buffer_size'?
    """
    config = IPUConfig()
    for name, value in arguments.items():
        if name in _RENAMED:
            _set(config, _RENAMED[name], SelectionOrder.AUTO if value is None else value)
        elif name in _PROFILING:
            if value:
                note(f"{name}={value!r} is accepted, but the simulation does not model it")
        else:
            close = difflib.get_close_matches(name, [*_RENAMED, *_PROFILING])
            advice = f". Did you mean '{close[0]}'?" if close else ""
            raise TypeError(
                f"create_ipu_config() got an unexpected keyword argument '{name}'{advice}"
            )
    return config


def _set(config: IPUConfig, name: str, value: object) -> None:
    *above, last = name.split(".")
    category: Any = config
    for part in above:
        category = getattr(category, part)
    setattr(category, last, value)


def auto_select_ipus(opts: IPUConfig, num_ipus: int | Sequence[int]) -> IPUConfig:
    """Take that many IPUs; a list is one number for each TensorFlow device.

    >>> auto_select_ipus(create_ipu_config(), num_ipus=2).auto_select_ipus
    2
    """
    opts.auto_select_ipus = num_ipus if isinstance(num_ipus, int) else list(num_ipus)
    return opts


def select_ipus(opts: IPUConfig, indices: Sequence[int]) -> IPUConfig:
    """Take the devices of these numbers."""
    opts.select_ipus = list(indices)
    return opts


def set_floating_point_behaviour_options(
    opts: IPUConfig,
    inv: bool = True,
    div0: bool = True,
    oflo: bool = True,
    esr: bool = True,
    nanoo: bool = True,
) -> IPUConfig:
    """Set the control bits; without arguments all of them are on.

    >>> opts = set_floating_point_behaviour_options(create_ipu_config(), esr=False)
    >>> opts.floating_point_behaviour.inv, opts.floating_point_behaviour.esr.name
    (True, 'OFF')
    """
    bits = opts.floating_point_behaviour
    bits.inv, bits.div0, bits.oflo, bits.nanoo = inv, div0, oflo, nanoo
    bits.esr = StochasticRoundingBehaviour.from_bool(esr)
    return opts


def set_matmul_options(
    opts: IPUConfig, matmul_options: Mapping[str, str] | None = None, clear_pass_type: bool = False
) -> IPUConfig:
    """Options of matrix products, as {"partialsType": "half"}."""
    opts.matmuls.poplar_options = dict(matmul_options or {})
    opts.matmuls.clear_pass_type = clear_pass_type
    return opts


def set_convolution_options(
    opts: IPUConfig, convolution_options: Mapping[str, str] | None = None
) -> IPUConfig:
    """Options of convolutions, as {"partialsType": "half"}."""
    opts.convolutions.poplar_options = dict(convolution_options or {})
    return opts


def set_norm_options(opts: IPUConfig, use_stable_statistics: bool = False) -> IPUConfig:
    """Whether normalisations subtract the mean before the variance."""
    opts.norms.use_stable_statistics = use_stable_statistics
    return opts


def set_recomputation_options(opts: IPUConfig, allow_recompute: bool = True) -> IPUConfig:
    """Whether activations are recomputed."""
    opts.allow_recompute = allow_recompute
    return opts
