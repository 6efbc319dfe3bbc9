"""The loop of the programs: epochs in the stored order, checkpoints, counters.

Source    Graphcore's TensorFlow 1 tutorial on half precision: one epoch of warm-up, then those that
          are reported; `repeat().batch()` without shuffling.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from tqdm import tqdm

from fpsim.records.flags import FloatingPointTrap
from fpsim.records.formats import BINARY32
from ipu.experiments.lab.variants import exceptions
from ipu.experiments.programs.options import ProgramOptions
from ipu.feed.batches import Batches
from ipu.feed.data import Data
from ipu.learn.checkpoint import Keeper, interrupt_later
from ipu.learn.metrics import RunningLoss
from ipu.learn.train import Trainer
from ipu.ops.heap import keep_freed_memory

__all__ = ["TrainingLoop", "run"]

SAVE_SECONDS = 30.0


def run(loop: TrainingLoop) -> int:
    """Train to the end; the exit status.

    A trap ends the run with the registers and status 1, a full disk with status 1, ^C after the
    step with status 130. Where a checkpoint folder is given, the same command goes on from there.
    """
    keep_freed_memory()
    with closing(loop), _notes(), interrupt_later() as interrupted:
        try:
            finished = loop.train(interrupted)
        except FloatingPointTrap as trap:
            print(f"stopped by an exception in batch {loop.batches.position}: {trap}")
            return 1
        except NotSavedError as error:
            print(f"stopped after batch {loop.batches.position}: {error}", file=sys.stderr)
            return 1
    if not finished:
        place = f"; the state is in {loop.keeper.path}" if loop.keeper else "; nothing was saved"
        print(f"interrupted after batch {loop.batches.position}{place}", file=sys.stderr)
        return 130
    print("\n".join(counters(loop.trainer)))
    print("Program ran successfully")
    return 0


@contextmanager
def _notes() -> Iterator[None]:
    """The library's warnings, of a rate that underflows, are notes of the program."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = lambda message, *_, **__: print(f"note: {message}", file=sys.stderr)
        yield


class NotSavedError(Exception):
    """The checkpoint could not be written."""


class TrainingLoop:
    """A training and where it is.

    Raises    ValueError for a batch larger than the data, and for a checkpoint of another run.
    """

    def __init__(self, name: str, trainer: Trainer, data: Data, options: ProgramOptions) -> None:
        self.trainer, self.options = trainer, options
        self.batches = Batches(data.learn[: options.limit], options.batch_size, shuffle=False)
        self.loss = RunningLoss(trainer.device, trainer.policy.default.activations)
        self.keeper = Keeper(options.checkpoint, SAVE_SECONDS) if options.checkpoint else None
        self.about = f"{name}, {options.numbers}, {data.source}"
        print(f"data: {data}")
        try:
            self._resume()
        except BaseException:
            self.close()
            raise
        self._time()

    def close(self) -> None:
        """Leave the folder of the checkpoints to other trainings."""
        if self.keeper:
            self.keeper.close()

    def _resume(self) -> None:
        state = self.keeper.load() if self.keeper else None
        if state is None:
            return
        progress = dict(state.progress or {})
        about = progress.pop("about", None)
        if about != self.about:
            raise ValueError(
                f"checkpoint={str(self.options.checkpoint)!r} is of another run: {about}; "
                f"asked for: {self.about}; give the same options, or another folder"
            )
        self.trainer.forward(self.batches.images[: self.batches.size].values)
        self.trainer.restore(state, self.batches)
        self.loss.restore(progress)  # type: ignore[arg-type]
        print(f"resumed after batch {state.position}")

    def _save(self) -> None:
        if not self.keeper:
            return
        progress = {"about": self.about, **self.loss.numbers}
        try:
            self.keeper.save(self.trainer.state(self.batches, progress))
        except OSError as error:
            raise NotSavedError(str(error)) from error

    def train(self, interrupted: Callable[[], bool]) -> bool:
        """The epochs that are left; False if it was interrupted before their end."""
        warm = 0 if self.options.no_warm_up else 1
        first = self.batches.position // self.batches.per_epoch
        for epoch in range(first, warm + self.options.epochs):
            number = epoch - warm + 1
            if not number:
                print("Executing warmup run...")
            if not self._epoch(f"epoch {number}", interrupted):
                return False
            if number:
                print(f"epoch {number}: {self.loss}, {self._rate():.1f} images/s")
            else:
                self._time()
            self.loss.clear()
            self._save()
            if interrupted():
                return False
        return True

    def _epoch(self, label: str, interrupted: Callable[[], bool]) -> bool:
        """What is left of an epoch; False if it was interrupted inside."""
        done = self.batches.position % self.batches.per_epoch
        bar = tqdm(desc=label, total=self.batches.per_epoch * self.batches.size, disable=None,
                   initial=done * self.batches.size, unit="img", leave=False)
        with bar:
            for batch in range(done, self.batches.per_epoch):
                images, labels = next(self.batches)
                loss = self.trainer.step(images, labels)
                self.loss.add(self.trainer.device.from_host(loss, BINARY32))
                bar.set_postfix_str(str(self.loss), refresh=False)
                bar.update(self.batches.size)
                inside = batch + 1 < self.batches.per_epoch
                if inside and (interrupted() or (self.keeper and self.keeper.due)):
                    self._save()
                if inside and interrupted():
                    return False
        return True

    def _time(self) -> None:
        """Images per second count from here: the warm-up has compiled what there is to compile."""
        self._started, self._from = time.perf_counter(), self.batches.position

    def _rate(self) -> float:
        """Images per second."""
        trained = (self.batches.position - self._from) * self.batches.size
        return trained / (time.perf_counter() - self._started)


def counters(trainer: Trainer) -> Iterator[str]:
    """What raised exceptions, by layer and phase, and the status register."""
    yield "exceptions (results, OFLO, INV, DIV0, underflow):"
    for row in exceptions(trainer):
        numbers = [row["results"], row["OFLO"], row["INV"], row["DIV0"], row["underflow"]]
        if any(numbers[1:]):
            yield f"  {row['layer']}, {row['phase']}: " + ", ".join(map(str, numbers))
    yield trainer.device.registers()
