"""Installing: `tensorflow.python.ipu` and what else programs import that TensorFlow 2.21 lacks.

A meta-path finder gives our modules under the vendor's names. Keras is Keras 2 (`tf_keras`), as
`tf.keras` and as `keras`, since Keras 3 fails in TensorFlow 1 graphs and refuses the documents'
optimisers; it is chosen before TensorFlow is imported.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

from ipu.frontends.tensorflow.missing import absent, no_name, refusing

__all__ = ["MODULES", "install"]

_OURS = "ipu.frontends.tensorflow"
_VENDOR = "tensorflow.python.ipu"

#: The vendor's modules below `tensorflow.python.ipu`, and ours.
MODULES = {
    "config": "settings.config",
    "eager": "operations.eager",
    "grad_util_ops": "operations.capture",
    "internal_ops": "internal_ops",
    "ipu_compiler": "compiler",
    "ipu_infeed_queue": "feeds",
    "ipu_outfeed_queue": "feeds",
    "ipu_strategy": "strategy",
    "cross_replica_ops": "training.cross_replica",
    "cross_replica_optimizer": "training.cross_replica",
    "custom_ops": "custom_ops",
    "dataset_benchmark": "benchmark",
    "distributed": "workers.distributed",
    "gradient_accumulation": "training.reductions",
    "gradient_accumulation_optimizer": "training.accumulation",
    "horovod": "workers.horovod",
    "ipu_estimator": "estimator.names",
    "ipu_horovod_strategy": "workers.strategies",
    "ipu_multi_worker_strategy": "workers.strategies",
    "ipu_pipeline_estimator": "estimator.pipelines",
    "ipu_run_config": "estimator.run_config",
    "ipu_session_run_hooks": "session_hooks",
    "keras": "keras.names",
    "layers": "keras.layers",
    "loops": "loops",
    "map_gradient_optimizer": "training.map_gradient",
    "nn_ops": "operations.nn",
    "normalization_ops": "operations.normalization",
    "optimizers": "training.names",
    "pipelining_ops": "pipelining.ops",
    "rand_ops": "operations.rand",
    "scopes": "scopes",
    "utils": "utils",
}

#: Other modules that programs import, and ours.
_ELSEWHERE = {
    "keras.datasets.cifar10": f"{_OURS}.datasets.cifar10",
    "keras.datasets.fashion_mnist": f"{_OURS}.datasets.fashion_mnist",
    "keras.datasets.mnist": f"{_OURS}.datasets.mnist",
    "keras.ipu": f"{_OURS}.keras.names",
    "keras.ipu.layers": f"{_OURS}.keras.layers",
    "keras.ipu.optimizers": f"{_OURS}.keras.optimizers",
    f"{_VENDOR}.distributed.popdist_strategy": f"{_OURS}.workers.popdist_strategy",
    f"{_VENDOR}.eager.backprop": f"{_OURS}.operations.capture",
    f"{_VENDOR}.horovod.popdist_strategy": f"{_OURS}.workers.popdist_strategy",
    f"{_VENDOR}.keras.layers": f"{_OURS}.keras.layers",
    f"{_VENDOR}.keras.optimizers": f"{_OURS}.keras.optimizers",
    "ipu_tensorflow_addons.keras.layers": f"{_OURS}.keras.layers",
    "keras.optimizer_v2.optimizer_v2": f"{_OURS}.keras.optimizer_v2",
    "tensorflow.keras.ipu": f"{_OURS}.keras.names",
    "tensorflow.keras.ipu.layers": f"{_OURS}.keras.layers",
    "tensorflow.keras.ipu.optimizers": f"{_OURS}.keras.optimizers",
    "tensorflow.python.keras.datasets": f"{_OURS}.datasets",
}
#: Names of the vendor that are packages and hold nothing but modules.
_PACKAGES = (
    _VENDOR, f"{_VENDOR}.ops", "keras.optimizer_v2", "ipu_tensorflow_addons",
    "ipu_tensorflow_addons.keras",
)
_ELSEWHERE |= {
    f"{vendor}.{name}": f"{ours}.{name}"
    for vendor, ours in tuple(_ELSEWHERE.items())
    if vendor.endswith(".datasets")
    for name in ("cifar10", "fashion_mnist", "mnist")
}


class _VendorFinder(importlib.abc.MetaPathFinder):
    """Finds our modules under the vendor's names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname in _PACKAGES:
            return importlib.machinery.ModuleSpec(fullname, _Package(), is_package=True)
        name = _ELSEWHERE.get(fullname) or _keras_2(fullname)
        prefix, _, last = fullname.rpartition(".")
        if name is None and prefix in (_VENDOR, f"{_VENDOR}.ops", f"{_VENDOR}.optimizers"):
            name = f"{_OURS}.{MODULES[last]}" if last in MODULES else None
        if fullname == "horovod.tensorflow" and _has_our_horovod():
            name = f"{_OURS}.{MODULES['horovod']}"
        if name is None:
            _refuse(fullname)
            return None
        return importlib.machinery.ModuleSpec(fullname, _Alias(fullname, name))


def _has_our_horovod() -> bool:
    """Whether `horovod` is ours, which a program's launcher gives; no other one is installed."""
    return getattr(sys.modules.get("horovod"), "__name__", "").startswith("ipu.")


def _refuse(fullname: str) -> None:
    """Say what to use instead of a module that is not modelled.

    Raises    ModuleNotFoundError; it has no name, with which `from … import` would drop its text.
    """
    sentence = absent(fullname)
    is_other = fullname.startswith("horovod.") and not _has_our_horovod()
    if sentence is not None and not is_other:
        raise ModuleNotFoundError(sentence)


#: Where Keras 2.21 keeps what older ones had elsewhere; its optimisers are those of `keras`.
_MOVED = (
    ("keras.optimizer_v2.gradient_descent", "keras.src.optimizers.sgd"),
    ("keras.optimizer_v2.learning_rate_schedule", "keras.optimizers.schedules"),
    ("keras.optimizer_v2.", "keras.src.optimizers."),
)


def _keras_2(fullname: str) -> str | None:
    """The module of Keras 2 for one that a program imports from `keras`."""
    if fullname != "keras" and not fullname.startswith("keras."):
        return None
    before, now = next((m for m in _MOVED if fullname.startswith(m[0])), ("", ""))
    name = f"tf_{now + fullname.removeprefix(before)}"
    with suppress(ModuleNotFoundError):
        return name if importlib.util.find_spec(name) else None
    return None


class _Alias(importlib.abc.Loader):
    """Loads a module that exists under another name."""

    def __init__(self, vendor: str, name: str) -> None:
        self._vendor, self._name = vendor, name

    def create_module(self, spec: Any) -> ModuleType:
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # importlib has put that of the alias there
        public = sorted(getattr(module, "__all__", ()))
        if public and "__getattr__" not in vars(module):
            vars(module)["__getattr__"] = refusing(self._vendor, (), public)


class _Package(importlib.abc.Loader):
    """Loads packages, as `tensorflow.python.ipu`, whose modules are imported when asked for."""

    def create_module(self, spec: Any) -> ModuleType:
        return _VendorPackage(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


class _VendorPackage(ModuleType):
    def __getattr__(self, name: str) -> Any:
        package = vars(self)["__name__"]
        if f"{package}.{name}" in (*_PACKAGES, *_ELSEWHERE) or (
            package.startswith(_VENDOR) and name in MODULES
        ):
            return importlib.import_module(f"{package}.{name}")
        text = absent(f"{package}.{name}")
        raise AttributeError(text or no_name(package, name, sorted(MODULES)))

    def __dir__(self) -> list[str]:
        return sorted(MODULES)


def install() -> None:
    """Make the vendor's modules importable; nothing happens the second time.

    Raises    RuntimeError where TensorFlow was imported before with another Keras.
    """
    if any(isinstance(finder, _VendorFinder) for finder in sys.meta_path):
        return
    if "tensorflow" not in sys.modules:
        os.environ["TF_USE_LEGACY_KERAS"] = "1"
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        _compile_protocol()
    elif os.environ.get("TF_USE_LEGACY_KERAS") != "1":
        raise RuntimeError(
            "TensorFlow was imported with Keras 3 before ipu.frontends.tensorflow; import that "
            "first, or start the program with: fpsim tf PROGRAM.py"
        )
    sys.meta_path.insert(0, _VendorFinder())
    _leave_unconverted()
    importlib.import_module(f"{_OURS}.additions").add_names()
    importlib.import_module(f"{_OURS}.devices").accept_devices()


def _compile_protocol() -> None:
    """Where there are other workers, the stubs of gRPC are built before TensorFlow is imported.

    TensorFlow 2.21 brings libraries of its own that the compiler of protocols crashes with.
    """
    if os.environ.get("TF_CONFIG") or os.environ.get("FPSIM_TRANSPORT") == "grpc":
        with suppress(ImportError):  # a missing extra is told when workers join
            importlib.import_module("ipu.members.grpc_server")


def _leave_unconverted() -> None:
    """AutoGraph converts a user's functions, and takes our modules as they are."""
    from tensorflow.python.autograph.core import config

    config.CONVERSION_RULES = (config.DoNotConvert("ipu.frontends"), *config.CONVERSION_RULES)
