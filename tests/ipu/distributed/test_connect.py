"""Transports are chosen by name (law: a missing extra is named)."""

from __future__ import annotations

import pytest

from ipu.distributed.cluster import Cluster
from ipu.distributed.connect import connect


def test_threads_are_no_transport_between_processes():
    with pytest.raises(ValueError, match="transport='local' has its workers in one process"):
        connect(Cluster())
