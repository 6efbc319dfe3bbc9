"""`import popdist` in a process of poprun: the names and modules of `ipu.frontends.popdist`."""

import ipu.frontends.popdist as _ours
from ipu.frontends.popdist import *  # noqa: F403

#: A module with a path is a package: `import popdist.poptorch` looks there.
__path__ = list(_ours.__path__)
