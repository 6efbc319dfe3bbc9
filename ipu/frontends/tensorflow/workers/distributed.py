"""`tensorflow.python.ipu.distributed`: the strategy of processes that poprun starts.

Source    graphcore/tensorflow, tensorflow/python/ipu/distributed.
"""

from ipu.frontends.tensorflow.workers import popdist_strategy

__all__ = ["popdist_strategy"]

#: The vendor's name is a package; its module is found by its own name.
__path__: list[str] = []
