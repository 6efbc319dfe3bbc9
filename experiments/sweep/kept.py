"""Results of jobs that have finished: FOLDER/KEY.json, each whole or not there.

A file holds its job, its version, the result as the job returned it, and the result's SHA-256. One
that is damaged, or that belongs to another job or version, counts as not there.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from fpsim.state.files import write_whole
from ipu.experiments.sweep.jobs import SweepJob, Version, key_of, read_result


class JobNotKeptError(RuntimeError):
    """The result of a job cannot be written; the text is the user's sentence."""


def keep(folder: Path, job: SweepJob, version: Version, text: str) -> Path:
    """Store the result of a job; the path of its file.

    Raises    JobNotKeptError where the file cannot be written.
    """
    content = {
        "job": job._asdict(),
        "version": version._asdict(),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "result": text,
    }
    path = folder / f"{key_of(job, version)}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(path, (json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())
    except OSError as error:
        raise JobNotKeptError(
            f"the result of {job} cannot be written to {path} ({error.strerror or error}); make "
            "room there, or use another --out"
        ) from None
    return path


def kept(folder: Path, job: SweepJob, version: Version) -> str | None:
    """The result of a job as it returned it; None where there is none that can be used."""
    path = folder / f"{key_of(job, version)}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        text, job_then, version_then = content["result"], content["job"], content["version"]
        whole = hashlib.sha256(text.encode()).hexdigest() == content["sha256"]
        same = job_then == _as_json(job) and version_then == version._asdict()
        read_result(text)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return text if whole and same else None


def _as_json(job: SweepJob) -> object:
    return json.loads(json.dumps(job._asdict()))
