"""PyTorch programs on the simulated machine: `with fpsim.torch.machine(...) as run:`."""

from ipu.frontends.torch.session import Session, machine

__all__ = ["Session", "machine"]
