"""The IPU's matrix units as records; importing this package makes their names known."""

from ipu.machine.units import amp, slic, vmac

__all__ = ["amp", "slic", "vmac"]
