"""PyTorch programs on the simulated machine: `with fpsim.torch.machine(...) as run:`."""

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ModuleNotFoundError(
        'PyTorch is not installed; install it with: pip install "fpsim[torch]"', name="torch"
    )

from ipu.frontends.common.changes import Changes
from ipu.frontends.torch.session import Session, machine

__all__ = ["Changes", "Session", "machine"]
