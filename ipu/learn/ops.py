"""The operations under the name that they had before `ipu.ops`; for one more version."""

from ipu.ops import *  # noqa: F403
