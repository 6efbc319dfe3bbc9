"""Horovod's processes: numbers, and what is refused (golden)."""

from __future__ import annotations

import pytest

from ipu.installation import how_to_install
from tests.ipu.frontends.horovod.program import alone, by_poprun


@pytest.mark.source("S1-25")
def test_without_mpi_the_import_names_what_to_install():
    code = """
import sys
sys.modules["mpi4py"] = None
try:
    from ipu.frontends import horovod
except ImportError as error:
    print(error)
"""
    assert alone(code)[1] == (
        "horovod needs an MPI library and found none; install Open MPI with your system's package "
        f"manager, or: {how_to_install('mpi')}\n"
    )


def test_one_process_of_poprun_needs_no_mpi():
    code = """
import sys
sys.modules["mpi4py"] = None
from ipu.installation import how_to_install
from ipu.frontends import horovod as hvd
try:
    hvd.size()
except ValueError as error:
    print(error)
hvd.init()
hvd.init()
print(hvd.is_initialized(), hvd.size(), hvd.rank(), hvd.local_size(), hvd.local_rank())
hvd.shutdown()
hvd.shutdown()
print(hvd.is_initialized())
"""
    status, out, errors = alone(code, **by_poprun())
    assert out.splitlines() == [
        "Horovod has not been initialized; use hvd.init().", "True 1 0 1 0", "False",
    ], errors
    assert status == 0
