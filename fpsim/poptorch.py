"""Vendors' names in a notebook: after `import fpsim.poptorch`, `import poptorch` is ours.

Needs the extra `torch` of the distribution for poptorch itself; `popdist`, `popart` and `horovod`
are there too. Names that another package has installed stay its own. Nothing of fpsim imports this
module.
"""

from ipu.frontends.processes.vendor_names import claim

claim()

__all__: list[str] = []
