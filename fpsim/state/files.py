"""Files that are there whole or not at all, and arrays read from files of others."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_arrays", "write_whole"]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file by name; that of an .npy file has the name "".

    Raises    OSError where it cannot be read; ValueError, with the reason as one line, where it is
              damaged, cut short, or holds objects.
    """
    with path.open("rb") as stream:
        try:
            content = np.load(stream, allow_pickle=False)
            if isinstance(content, np.ndarray):
                return {"": content}
            return {name: content[name] for name in content.files}
        except OSError:
            raise
        except Exception as error:
            # One wrong bit can be an error of zipfile, zlib, numpy or the parser of its headers.
            reason = str(error) or type(error).__name__
            raise ValueError(reason.splitlines()[0]) from None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that readers, a crash and a full disk leave the old content or the new.

    The content is written beside the file and on the disk before it takes the file's name.

    Raises    OSError where it cannot be written; the file is then as before.
    """
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            # mkstemp makes files private; this one is as readable as the user's others.
            mask = os.umask(0)
            os.umask(mask)
            os.fchmod(file.fileno(), 0o666 & ~mask)
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
