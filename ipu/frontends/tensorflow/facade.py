"""TensorFlow 1: `import tensorflow as tf` gives `tf.compat.v1` in graph mode.

The module `tensorflow` is replaced by one that looks a name up in compat.v1 first and in
TensorFlow 2 then, so that submodules are imported as ever.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import tensorflow
from tensorflow.python.client import session

from ipu.frontends.tensorflow.engine.launch import failure_of
from ipu.frontends.tensorflow.engine.sessions import running
from ipu.frontends.tensorflow.engine.turns import turn
from ipu.frontends.tensorflow.reading import end_readers

__all__ = ["install_facade", "watch_sessions"]

#: Names that stay those of TensorFlow 2: packages whose modules are imported by their path.
_KEPT = frozenset(("compat", "python", "__path__", "__spec__", "__file__"))


class _Facade(ModuleType):
    def __init__(self, real: ModuleType) -> None:
        super().__init__("tensorflow", real.__doc__)
        self.__dict__["_real"] = real
        for name in ("__path__", "__spec__", "__file__", "__loader__"):
            self.__dict__[name] = getattr(real, name)

    def __getattr__(self, name: str) -> Any:
        real = self.__dict__["_real"]
        if name not in _KEPT and hasattr(real.compat.v1, name):
            return getattr(real.compat.v1, name)
        return getattr(real, name)


def install_facade() -> None:
    """Programs written for TensorFlow 1 run from now on in this process."""
    if isinstance(sys.modules["tensorflow"], _Facade):
        return
    tensorflow.compat.v1.disable_v2_behavior()
    tensorflow.compat.v1.enable_resource_variables()
    sys.modules["tensorflow"] = _Facade(tensorflow)
    watch_sessions()


def watch_sessions() -> None:
    """Sessions report errors of launches, and end the readers of their data sets before they close.

    An error of a launch leaves `Session.run` as it was, without TensorFlow's own traceback.
    """
    run, close = session.BaseSession.run, session.BaseSession.close
    if getattr(run, "_reports_failures", False):
        return

    def reporting(self: Any, fetches: Any, *arguments: Any, **options: Any) -> Any:
        try:
            with running(self), turn(self, fetches):
                return run(self, fetches, *arguments, **options)
        except tensorflow.errors.OpError as error:
            failure = failure_of(str(error))
            if failure is None:
                raise
            raise failure from None

    def closing(self: Any) -> None:
        end_readers(self)
        close(self)

    reporting._reports_failures = True  # type: ignore[attr-defined]
    session.BaseSession.run, session.BaseSession.close = reporting, closing
