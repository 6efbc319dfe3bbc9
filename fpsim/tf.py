"""TensorFlow programs on the simulated machine: the names of `ipu.frontends.tensorflow`.

Needs the extra `tensorflow` of the distribution, and to be imported before TensorFlow. Nothing of
fpsim imports this module.
"""

from ipu.frontends.tensorflow import install

install()

from ipu.frontends.tensorflow.engine.current import TensorFlowRun, machine  # noqa: E402

__all__ = ["TensorFlowRun", "machine"]
