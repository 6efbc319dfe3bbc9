"""The files of compiled kernels: one file a kernel, named by all that its code depends on.

Numba keeps an index beside its files, which two processes can write at once, and which stops every
later start where it is cut or empty. Here is none: a file's name holds the module, the function, a
hash of the source, the signature, the byte code and the captured numbers, and one of the processor,
so that processes never take each other's code. Its first bytes are the hash of the rest: a damaged
file is deleted, and the kernel compiled again. A disk that is full or cannot be written costs one
warning, and the program goes on with what it compiled. Paths of sources do not matter.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import sys
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import Cache
from numba.core.compiler import CompileResult
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from fpsim.kernels.packs import find_pack

__all__ = ["KernelCache"]

_DIGEST = hashlib.sha256().digest_size


@cache
def _warn_once(folder: str, reason: str) -> None:
    warnings.warn(
        f"compiled kernels cannot be kept in {folder} ({reason}), so every process compiles its "
        "own; make room there, or name another folder in FPSIM_CACHE_DIR",
        RuntimeWarning,
        stacklevel=2,
    )


@cache
def _digest(path: str) -> str:
    """Hash of a source file, read once however many kernels it holds."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _checked(data: bytes) -> bytes | None:
    """What a file holds behind the hash of it; None where they differ."""
    digest, body = data[:_DIGEST], data[_DIGEST:]
    return body if hashlib.sha256(body).digest() == digest else None


class _Files:
    """Kernels of one function on disk, in the place of numba's index and data files."""

    def __init__(self, folder: str | None, base: str, source: str) -> None:
        self._folder = None if folder is None else Path(folder)
        self._base, self._source = base, source

    def _names(self, key: Any) -> tuple[str, str]:
        """The name of a kernel for any processor, and that of its file."""
        signature, processor, hashes = key
        text = repr((numba.__version__, self._source, str(signature), hashes))
        name = f"{self._base}.{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        return name, f"{name}.{hashlib.sha256(repr(processor).encode()).hexdigest()[:8]}.nbc"

    def load(self, key: Any) -> Any:
        """What was kept under this key, or came with the package; None where nothing is whole."""
        name, file = self._names(key)
        if self._folder is not None:
            path = self._folder / file
            with suppress(OSError):
                body = _checked(path.read_bytes())
                if body is not None:
                    return pickle.loads(body)
                path.unlink()
        pack = find_pack()
        data = None if pack is None else pack.get(name)
        body = None if data is None else _checked(data)
        return None if body is None else pickle.loads(body)

    def save(self, key: Any, data: Any) -> None:
        """Keep this under the key; a reader sees the whole file or none."""
        if self._folder is None:
            return
        body = dumps(data)
        path = self._folder / self._names(key)[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.stem, suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(body).digest() + body)
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise

    def flush(self) -> None:
        """Forget all kernels of the function."""
        if self._folder is None:
            return
        for path in self._folder.glob(f"{self._base}.*.nbc"):
            path.unlink(missing_ok=True)


class KernelCache(Cache):
    """Numba's cache of one function, on the files above; no failure of a disk leaves it.

    Numba's own constructor chooses a folder and an index, which are not used here.

    Raises    nothing; RuntimeWarning once for a folder that takes no file, and for a kernel that
              another process could not use.
    """

    def __init__(self, function: Callable[..., Any], folder: str | None) -> None:
        code, name = function.__code__, re.sub("[<>]", "", function.__qualname__)
        python = f"py{sys.version_info.major}{sys.version_info.minor}{sys.abiflags}"
        base = f"{function.__module__}.{name}-{code.co_firstlineno}.{python}"
        self._name, self._py_func, self._cache_path = repr(function), function, folder
        self._cache_file = _Files(folder, base, _digest(code.co_filename))
        #: Where the code of each signature begins.
        self.addresses: dict[tuple[Any, ...], int] = {}
        self.enable()

    def _note_address(self, code: CompileResult) -> CompileResult:
        """Now, while the name is known to be of this code: kernels that two processes have kept may
        have one name, which then stands for the one that was loaded last.
        """
        address = code.library.get_pointer_to_function(code.fndesc.llvm_func_name)
        self.addresses[tuple(code.signature.args)] = address
        return code

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """The kernel of a signature; None where none is kept.

        Numba's cache fills the registries of its compiler here, which takes longer than all kernels
        of a program. Compiled code needs the functions of the run time alone.
        """
        rtsys.initialize(target_context)
        if not self._enabled:
            return None
        parts = self._cache_file.load(self._index_key(sig, target_context.codegen()))
        if parts is None:
            return None
        return self._note_address(CompileResult._rebuild(target_context, *parts))

    def save_overload(self, sig: Any, data: CompileResult) -> None:
        """Keep a kernel; where the disk refuses, say so once."""
        self._note_address(data)
        if not self._enabled:
            return
        if data.lifted or data.library.has_dynamic_globals:
            warnings.warn(
                f"{self._name} holds addresses of this process and is not kept; give its arrays as "
                "arguments",
                RuntimeWarning,
                stacklevel=2,
            )
            return
        try:
            self._cache_file.save(self._index_key(sig, data.codegen), data._reduce())
        except OSError as error:
            _warn_once(self._cache_path, error.strerror or str(error))
