"""Checkpoints of a training on several processes, in a folder that all of them reach.

`step-T/shared.npz` holds what is equal on all replicas, by the first worker; `worker-r.npz` what
replica r has of its own (moving statistics, flags, counts, position in the data), by the worker
that computes it. When all files are written, `manifest.json` is: digests, sizes, R, and what the
training was built from. A step without manifest does not exist. Private files are those of
replicas, so a training goes on with any number of processes, and with the same replicas only.

The last two complete steps are kept.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fpsim.state.files import write_whole
from ipu.learn.checkpoint import TrainingState, load, save, take
from ipu.learn.checkpoint.file import check_folder
from ipu.learn.checkpoint.lock import FolderLock
from ipu.learn.checkpoint.state import Kept, Positioned, Replica
from ipu.learn.train import Trainer
from ipu.members.group import Processes

__all__ = ["KEPT", "MANIFEST", "Checkpoints"]

MANIFEST, SHARED = "manifest.json", "shared.npz"
VERSION = 1
#: Complete steps that are kept.
KEPT = 2
#: Bytes of a manifest that are read.
_LONGEST = 1 << 24
_ADVICE = "remove this step to go on from the one before"

_STEP = re.compile("step-(0|[1-9][0-9]*)")
#: An empty file by which workers see that they have one folder.
_PROBE = re.compile("[.]shared-[0-9a-f]{16}")
#: The files of a step, and what killed workers leave of them (`fpsim.state.files`).
_FILES = (SHARED, "worker-*.npz", ".*.npz.*.draft", f".{MANIFEST}.*.draft")


class Checkpoints:
    """The checkpoints of one training in a folder, which is this training's until `close`.

    Every worker makes its own at the same time. It may stand in a `with`, which closes it.

    Raises    ValueError, on every worker, where the first cannot write in the folder or another
              training saves there, and where another worker has a folder of its own at that path.
    """

    def __init__(self, folder: Path, group: Processes) -> None:
        self.folder = folder
        self.group = group
        self._lock: FolderLock | None = None
        refusal = ""
        if group.channel.rank == 0:
            try:
                check_folder(folder)
                self._lock = FolderLock(folder)
            except (OSError, ValueError) as error:
                refusal = str(error)
        refusal = group.channel.broadcast(refusal.encode(), what="the folder").decode()
        if refusal:
            raise ValueError(refusal)
        try:
            if group.channel.rank == 0:
                self._clean()
            self._check_shared()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave the folder to other trainings; it happens at the end of the process as well."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _clean(self) -> None:
        """Remove what a killed training has left: steps that were cut short, and its probe."""
        complete = self.steps()
        for path in self.folder.glob(".shared-*"):
            if _PROBE.fullmatch(path.name):
                with suppress(OSError):
                    path.unlink()
        for step, path in self._folders():
            if step not in complete:
                _remove_step(path)

    def _check_shared(self) -> None:
        """Raise ValueError, on every worker, where one does not see a file of the first."""
        channel, folder = self.group.channel, self.folder
        name = channel.broadcast(f".shared-{secrets.token_hex(8)}".encode(), what="the folder")
        path = folder / name.decode()
        with suppress(OSError):  # what cannot be written is not seen either
            if channel.rank == 0:
                path.touch()
        channel.barrier("the folder")
        replies = channel.gather(b"seen" * path.exists(), "the folder")
        with suppress(OSError):
            if channel.rank == 0:
                path.unlink()
        if b"" in replies:
            who = self.group.transport.describe(replies.index(b""))
            raise ValueError(
                f"checkpoint={str(folder)!r} of {who} is not the folder of worker 0; name a "
                "folder that all workers reach, such as one of a network file system"
            )

    def steps(self) -> list[int]:
        """The complete steps, rising."""
        return sorted(step for step, path in self._folders() if (path / MANIFEST).exists())

    def _folders(self) -> list[tuple[int, Path]]:
        """The folders of steps, complete or not."""
        matches = [(_STEP.fullmatch(path.name), path) for path in self.folder.glob("step-*")]
        return [(int(match[1]), path) for match, path in matches if match]

    # Saving -----------------------------------------------------------------------------------

    def save(self, training: Trainer, source: Positioned | None = None) -> None:
        """Save the last step; every worker calls this after the same step.

        source    of this worker's data, whose position is saved.

        Raises    OSError, on every worker, where one cannot write; the step then does not exist.
        """
        with self.group.members.running(lambda: training.steps):
            self._save(training, source)

    def _save(self, training: Trainer, source: Positioned | None) -> None:
        group, channel = self.group, self.group.channel
        group.settle(training)
        folder = self.folder / f"step-{training.steps}"
        # A step that was cut short, or was run again, is written anew.
        if channel.rank == 0:
            with suppress(OSError):  # a folder that cannot be written to is told with its files
                (folder / MANIFEST).unlink(missing_ok=True)
        channel.barrier("a checkpoint")
        files = self._written(folder, self._states(training, source))
        rows = [json.loads(row) for row in channel.gather(files, "files")]
        for rank, row in enumerate(rows):
            if "error" in row:
                raise OSError(f"{group.transport.describe(rank)}: {row['error']}")
        if channel.rank == 0:
            manifest = {
                "version": VERSION, "step": training.steps, "replicas": group.replicas,
                "built": group.built(training),
                "files": {name: digest for row in rows for name, digest in row.items()},
            }
            write_whole(folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())
            self._prune()
        channel.barrier("a checkpoint")
        group.saved = training.steps

    @staticmethod
    def _written(folder: Path, files: Mapping[str, TrainingState]) -> bytes:
        """Write this worker's files; their digests and sizes as JSON."""
        try:
            for name, state in files.items():
                save(folder / name, state)
            rows = {name: _digest(folder / name) for name in files}
        except OSError as error:
            return json.dumps({"error": str(error)}).encode()
        return json.dumps(rows).encode()

    def _states(self, training: Trainer, source: Positioned | None) -> dict[str, TrainingState]:
        """What this worker writes, by file name."""
        state = take(training, source)
        replica_numbers = self.group.own(self.group.replicas)
        shared = {v.name for v in training.variables.trainable}
        files = {}
        if self.group.channel.rank == 0:
            files[SHARED] = replace(
                state, built=self.group.built(training), flags={}, status=0, counts=None,
                replicas=(), operation=0, delayed={},
            )
        replicas: list[TrainingState | Replica] = [state, *state.replicas]
        for replica, one in zip(replica_numbers, replicas, strict=True):
            everything = {**state.parameters, **one.parameters}
            slots = {**state.slots, **one.slots}
            drift = self._drifts(training)
            files[f"worker-{replica}.npz"] = TrainingState(
                built={},
                parameters={n: k for n, k in everything.items() if drift or n not in shared},
                slots={n: k for n, k in slots.items() if drift or n not in shared},
                loss_scale={}, operation=one.operation, flags=one.flags, status=one.status,
                counts=one.counts, step=state.step, position=state.position,
                delayed=one.delayed,
            )
        return files

    @staticmethod
    def _drifts(training: Trainer) -> bool:
        """Whether the replicas have weights of their own."""
        return bool(getattr(training, "private_updates", False))

    def _prune(self) -> None:
        """Remove all but the last complete steps, and what was cut short before them."""
        *_, last = latest = self.steps()[-KEPT:]
        for step, path in self._folders():
            if step < last and step not in latest:
                _remove_step(path)

    # Resuming ---------------------------------------------------------------------------------

    def latest(self) -> int | None:
        """The latest step that is complete for every worker."""
        rows = self.group.channel.gather(json.dumps(self.steps()).encode(), "complete steps")
        common = set.intersection(*(set(json.loads(row)) for row in rows))
        return max(common, default=None)

    def resume(self, training: Trainer, step: int, source: Positioned | None = None) -> None:
        """Put a training with variables, and its data source, where they stood after that step.

        Raises    ValueError, on every worker, where one has files that are not those of the
                  manifest, or a training of other replicas or built in another way.
        """
        refusal = ""
        try:
            self._resume(training, step, source)
        except ValueError as error:
            refusal = str(error)
        refusals = self.group.channel.gather(refusal.encode(), "the checkpoint")
        if any(refusals):
            raise ValueError(refusal or next(filter(None, refusals)).decode())
        self.group.saved = step

    def _resume(self, training: Trainer, step: int, source: Positioned | None) -> None:
        group, folder = self.group, self.folder / f"step-{step}"
        manifest = _manifest(folder / MANIFEST, step)
        if manifest["replicas"] != group.replicas:
            raise ValueError(
                f"checkpoint={str(folder)!r} is of {manifest['replicas']} replicas, the training "
                f"has {group.replicas}; any number of processes may go on, with the same replicas"
            )
        _check_files(folder / MANIFEST, manifest)
        names = [f"worker-{replica}.npz" for replica in group.own(group.replicas)]
        for name in (SHARED, *names):
            if not _matches(folder / name, manifest["files"][name]):
                raise ValueError(
                    f"checkpoint={str(folder / name)!r} is not the file of its manifest: it is "
                    f"missing or damaged; {_ADVICE}"
                )
        state = _assembled(load(folder / SHARED), [load(folder / name) for name in names])
        here, there = group.built(training), dict(state.built)
        if there.get("bits") == here["bits"]:
            # Each process knows the random bits of its own first replica.
            there["bits"] = take(training).built["bits"]
        training.restore(replace(state, built=there), source)


def _assembled(shared: TrainingState, of_replicas: list[TrainingState]) -> TrainingState:
    """The state of a process: what is equal on all replicas, and its replicas' own."""
    first, *others = of_replicas
    return replace(
        shared, parameters={**shared.parameters, **first.parameters},
        slots={**shared.slots, **first.slots}, operation=first.operation, flags=first.flags,
        status=first.status, counts=first.counts, position=first.position, delayed=first.delayed,
        replicas=tuple(_replica(state) for state in others),
    )


def _replica(state: TrainingState) -> Replica:
    parameters: Mapping[str, Kept] = state.parameters
    return Replica(
        parameters, state.slots, state.operation, state.flags, state.status, state.counts,
        state.delayed,
    )


def _remove_step(folder: Path) -> None:
    """Remove the files of a step; a folder that holds others' files stays."""
    with suppress(OSError):
        # First of all: a step that is removed by halves must not look complete.
        (folder / MANIFEST).unlink(missing_ok=True)
        for path in [path for pattern in _FILES for path in folder.glob(pattern)]:
            path.unlink(missing_ok=True)
        folder.rmdir()


def _manifest(path: Path, step: int) -> dict[str, Any]:
    """The manifest of a step, with every entry that is read of it."""
    try:
        size = path.stat().st_size
        if size > _LONGEST:
            raise ValueError(f"it has {size} bytes, at most {_LONGEST} are read")
        manifest: dict[str, Any] = dict(json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"checkpoint={str(path)!r} is no manifest ({error}); {_ADVICE}") from None
    version = manifest.get("version")
    if version != VERSION:
        raise ValueError(
            f"checkpoint={str(path)!r} has version {version}, this fpsim reads {VERSION}"
        )
    kinds = {"step": int, "replicas": int, "files": dict}
    wrong = [name for name, kind in kinds.items() if type(manifest.get(name)) is not kind]
    if wrong or manifest["step"] != step:
        raise ValueError(
            f"checkpoint={str(path)!r} is damaged in its entry {(*wrong, 'step')[0]!r}; {_ADVICE}"
        )
    return manifest


def _check_files(path: Path, manifest: Mapping[str, Any]) -> None:
    """Raise ValueError where a manifest does not have exactly the files of its replicas."""
    names = {SHARED, *(f"worker-{replica}.npz" for replica in range(manifest["replicas"]))}
    files = manifest["files"]
    wrong = [f"{name!r} is no file of this step" for name in sorted(files.keys() - names)]
    wrong += [f"{name!r} is missing" for name in sorted(names - files.keys())]
    wrong += [f"{name!r} has no digest and size" for name in sorted(names & files.keys())
              if not _is_known(files[name])]
    if wrong:
        raise ValueError(
            f"checkpoint={str(path)!r} is damaged in its entry 'files': {wrong[0]}; {_ADVICE}"
        )


def _is_known(entry: object) -> bool:
    """Whether an entry of a file is its SHA-256 and size."""
    return isinstance(entry, list) and [type(value) for value in entry] == [str, int]


def _matches(path: Path, expected: list[str | int]) -> bool:
    """Whether a file has that digest and size; one of another size is not read."""
    try:
        return path.stat().st_size == expected[1] and _digest(path) == expected
    except OSError:
        return False


def _digest(path: Path) -> list[str | int]:
    """SHA-256 and size of a file."""
    content = path.read_bytes()
    return [hashlib.sha256(content).hexdigest(), len(content)]
