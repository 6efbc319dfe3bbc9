"""TensorFlow programs on the simulated machine: `fpsim tf PROGRAM`, or import this first.

Importing it makes `tensorflow.python.ipu` importable and chooses Keras 2; the machine is that of
the program's IPUConfig.
"""

from importlib.util import find_spec

from ipu.installation import not_installed

if find_spec("tensorflow") is None:
    raise ModuleNotFoundError(
        f"{not_installed('TensorFlow', 'tensorflow')} (Python 3.11 to 3.13)",
        name="tensorflow",
    )

from ipu.frontends.tensorflow.install import install

__all__ = ["install"]

install()
