"""Listings of the guide's chapter on several machines: estimators of one or two workers."""

from __future__ import annotations

from ipu.experiments.listings.sources import DocumentListing

__all__ = ["LISTINGS"]

LISTINGS = (
    DocumentListing(
        "distributed_estimator", "001", 61, 176, numbered=True, tf1=True,
        arguments=("--num-steps", "20"),
        levels="000000112222112111123121012222221122112211223332331122111112220000100001111000"
        "0011110001111",
    ),
    DocumentListing(
        "horovod_estimator", "001", 216, 315, numbered=True, tf1=True,
        arguments=("--num-steps", "20"),
        levels="00000000112222112111112101222222112211221112211111222000000001111000001111000",
    ),
)
