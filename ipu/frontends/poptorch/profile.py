"""Profiles: where a program asks for them, and PopTorch's methods that have nothing to tell here.

Pictures of a profile are drawn by `fpsim mnist_pipeline` and its experiment.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from ipu.frontends.poptorch.dictionary import once

__all__ = ["UNMODELLED", "folder_of_reports"]

_NO_TIMES = "nothing is timed here; writeProfile(folder) has the cycles of a declared model"
_NO_FILES = "there are no executables; save(path) keeps model, options and state"
_NO_NAMES = "tensors have no names of PopART's; return them from the model"
#: Methods of PopTorch's that have nothing to tell here, and why.
UNMODELLED = {
    "getLatency": _NO_TIMES, "getHostIpuLatency": _NO_TIMES, "getComputeLatency": _NO_TIMES,
    "getIpuHostLatency": _NO_TIMES, "getPerfCounters": _NO_TIMES, "cycleCount": _NO_TIMES,
    "compileAndExport": _NO_FILES, "loadExecutable": _NO_FILES,
    "getAnchoredTensor": _NO_NAMES,
}


def folder_of_reports() -> Path | None:
    """Where POPLAR_ENGINE_OPTIONS asks for reports: {"autoReport.all": "true"}; else None.

    Its other options are told, once each: they steer Poplar and the threads of its host.

    Raises    ValueError for a variable that is no JSON object.
    """
    text = os.environ.get("POPLAR_ENGINE_OPTIONS", "")
    if not text:
        return None
    try:
        engine_options = json.loads(text)
        wanted = str(engine_options.get("autoReport.all", "false")).lower() == "true"
    except (json.JSONDecodeError, AttributeError) as error:
        raise ValueError(
            f"POPLAR_ENGINE_OPTIONS={text!r} is no JSON object; write "
            '{"autoReport.all": "true", "autoReport.directory": "FOLDER"}'
        ) from error
    for name in sorted(engine_options):
        if not name.startswith("autoReport."):
            once(
                f"POPLAR_ENGINE_OPTIONS: {name}",
                "nothing is compiled by Poplar, and the account of a plan has one host that feeds "
                "all replicas at once",
            )
    return Path(engine_options.get("autoReport.directory", ".")) if wanted else None
