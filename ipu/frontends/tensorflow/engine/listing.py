"""The training programs of a process as the others compare them at their first meeting.

Constants are left out: a program may compute them for its own share of the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ipu.frontends.tensorflow.engine.node import Node
from ipu.frontends.tensorflow.kernels.table import NodeSite
from ipu.ops.listing import Listing

__all__ = ["list_sites", "list_to"]

#: Attributes of nodes that are options of the operation.
_OPTIONS = (
    "alpha", "data_format", "dilations", "epsilon", "is_training", "keep_dims", "ksize",
    "padding", "strides", "transpose_a", "transpose_b", "use_locking", "use_nesterov",
)

_listing: Listing | None = None


def list_to(listing: Listing | None) -> None:
    """Plans that are made from now on are listed here."""
    global _listing
    _listing = listing


def list_sites(sites: Sequence[NodeSite]) -> None:
    """List the nodes of a plan that has gradients."""
    if _listing is None or not _listing.is_open:
        return
    if not any(site.direction == "backward" for site in sites):
        return
    for site in sites:
        node = site.node
        if node.has_floats and node.type != "Const" and site.direction != "evaluation":
            operands = [f"{x.dtype.name} {x.shape}" for x in node.inputs]
            _listing.add(f"{site.layer} {site.direction}", node.type, operands, [*_options(node)])


def _options(node: Node) -> Iterator[str]:
    attributes: Any = node.op.node_def.attr
    for name in _OPTIONS:
        if name in attributes:
            yield f"{name}={node.attr(name)!r}"
