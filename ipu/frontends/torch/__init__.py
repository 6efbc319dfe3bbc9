"""PyTorch programs on the simulated machine: `with fpsim.torch.machine(...) as run:`."""

from importlib.util import find_spec

from ipu.installation import not_installed

if find_spec("torch") is None:
    raise ModuleNotFoundError(not_installed("PyTorch", "torch"), name="torch")

from ipu.frontends.torch.inference import Evaluation, evaluate, evaluate_layers
from ipu.frontends.torch.session import Session, machine, native
from ipu.run.changes import Changes

__all__ = [
    "Changes", "Evaluation", "Session", "evaluate", "evaluate_layers", "machine", "native",
]
