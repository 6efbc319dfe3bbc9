"""Doctests are collected where their library is installed; tests leave no configured machine."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

#: The module that keeps the configuration.
_SYSTEM = "ipu.frontends.tensorflow.settings.system"

# Importing the first starts MPI; the second claims vendors' names for the whole process.
collect_ignore = ["ipu/frontends/horovod", "fpsim/poptorch.py"]
if not find_spec("torch"):
    collect_ignore += ["fpsim/torch.py", "ipu/frontends/torch", "ipu/frontends/poptorch"]
    collect_ignore += ["ipu/frontends/popdist/poptorch.py"]
    collect_ignore += ["tests/ipu/frontends/poptorch/engine/sharing.py"]
if not find_spec("tensorflow"):
    collect_ignore += ["fpsim/tf.py", "ipu/frontends/tensorflow"]
if not find_spec("bitwuzla"):
    collect_ignore += ["fpsim/judge/proofs"]
if not (find_spec("grpc") and find_spec("grpc_tools")):
    collect_ignore += ["ipu/members/grpc_server.py", "ipu/members/grpc_transport.py"]
    collect_ignore += ["tests/ipu/members/damaging.py", "tests/ipu/members/joining.py"]


@pytest.fixture(autouse=True)
def configuration_of_before() -> Iterator[None]:
    """A test leaves no configuration of TensorFlow's machine: the next one may begin anew."""
    before = _configuration()
    yield
    if _configuration() is not before:
        sys.modules[_SYSTEM].restore(before)


def _configuration() -> object:
    """What TensorFlow's machine is configured with, if its front end is in use."""
    system = sys.modules.get(_SYSTEM)
    return system.current() if system is not None and system.is_configured() else None
