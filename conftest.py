"""Doctests of front ends and transports are collected where their library is installed."""

from importlib.util import find_spec

# Importing it starts MPI.
collect_ignore = ["ipu/frontends/horovod"]
if not find_spec("torch"):
    collect_ignore += ["fpsim/torch.py", "ipu/frontends/torch", "ipu/frontends/poptorch"]
    collect_ignore += ["ipu/frontends/popdist/poptorch.py"]
    collect_ignore += ["tests/ipu/frontends/poptorch/engine/sharing.py"]
if not find_spec("tensorflow"):
    collect_ignore += ["ipu/frontends/tensorflow"]
if not (find_spec("grpc") and find_spec("grpc_tools")):
    collect_ignore += ["ipu/distributed/grpc_server.py", "ipu/distributed/grpc_transport.py"]
    collect_ignore += ["tests/ipu/distributed/damaging.py", "tests/ipu/distributed/joining.py"]
