"""Profiles: schedule, account of memory and timeline of one update, as files.

`schedule.json` has the programs with slot, IPU, phase, stage and micro-batch; `account.json` the
memory by slot and kind, copies, transfers and cycles; `trace.json` opens in Perfetto and other
viewers of trace events. Pictures are drawn from them by `fpsim mnist_pipeline` and its experiment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ipu.plan.cycles import timeline
from ipu.plan.memory import StageFigures, lives
from ipu.plan.plan import Plan
from ipu.plan.trace import account, trace_events, write_json

__all__ = ["UNMODELLED", "folder_of_reports", "write_profile"]

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

    Raises    ValueError for a variable that is no JSON object.
    """
    text = os.environ.get("POPLAR_ENGINE_OPTIONS", "")
    if not text:
        return None
    try:
        chosen = json.loads(text)
        wanted = str(chosen.get("autoReport.all", "false")).lower() == "true"
    except (json.JSONDecodeError, AttributeError) as error:
        raise ValueError(
            f"POPLAR_ENGINE_OPTIONS={text!r} is no JSON object; write "
            '{"autoReport.all": "true", "autoReport.directory": "FOLDER"}'
        ) from error
    return Path(chosen.get("autoReport.directory", ".")) if wanted else None


def write_profile(folder: Path, plan: Plan, figures: Sequence[StageFigures]) -> list[Path]:
    """The files of a profile, in a folder that is created if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = account(plan, figures)
    programs = whole.pop("programs")
    files: dict[str, dict[str, Any]] = {
        "schedule.json": {"plan": whole["plan"], "slots": plan.slots, "programs": programs},
        "account.json": whole | {"figures": [asdict(own) for own in figures]},
        "trace.json": trace_events(timeline(plan, figures), lives(plan, figures)),
    }
    for name, value in files.items():
        write_json(folder / name, value)
    return [folder / name for name in files]
