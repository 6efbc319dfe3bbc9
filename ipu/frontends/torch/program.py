"""An unedited program in a session: as `python PROGRAM.py ARGS` runs it, on the machine.

Under `fpsim poprun` the session is one replica of the run.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from fpsim.records.formats import BINARY32, find_number_format
from ipu.frontends.processes.programs import ProgramError, run_file, run_module
from ipu.frontends.torch.observing import host_values
from ipu.frontends.torch.replicas.several import SeveralReplicas
from ipu.frontends.torch.session import Session
from ipu.members.cluster import Cluster
from ipu.members.members import join
from ipu.members.transport import StoppedError
from ipu.plan.orders import Order
from ipu.run.noise import ResultNoise, moved_up
from ipu.run.patterns import PatternError

__all__ = ["join_replicas", "nudged", "perturbed", "run_program", "settings_of"]

#: Set in every process of poprun.
_BY_POPRUN = "POPDIST_NUM_INSTANCES"


def settings_of(session: Session) -> list[str]:
    """What reaches bits of a run, as lines "name: value": equal on all its processes."""
    device = session.device
    rows = {
        "way": session.way, "random bits": device.source, "target": device.target.name,
        "control bits": device.control, "ties": session.options.ties,
        "found_inf": session.options.found_inf,
        "preset": device.options.preset, "f32_denormals": device.options.f32_denormals,
        "max_nan": device.options.max_nan, "sums": device.options.sums,
    }
    return [f"{name}: {value}" for name, value in rows.items()]


def join_replicas(session: Session) -> int:
    """Join a session to those of the processes that `fpsim poprun` started; how many there are.

    Each is one replica; several replicas of a process are for models of PopTorch.

    Raises    JoinError for processes that do not come; ImportError where the transport is not
              installed.
    """
    cluster = Cluster.from_environment() if _BY_POPRUN in os.environ else None
    if cluster is None or cluster.replicas == 1:
        return 1
    order = cluster.order or Order.AUTO
    members = join(cluster, [f"order: {order.value}", *settings_of(session)], ends=False)
    session.replicas = SeveralReplicas(
        members, session.memory, order, shares_status=session.options.found_inf == "status",
        local=cluster.local_replicas,
    )
    session.replica = cluster.rank
    session.listing = members.program if cluster.size > 1 else None
    return cluster.size


@contextmanager
def perturbed(fmt: str, seed: int) -> Iterator[None]:
    """Inside, the parameters of a module move at its first call, by a unit in the last place.

    fmt    the format whose units these are; each number goes up or down at random.

    Raises    ValueError for a name that is no format of numbers.
    """
    noise = ResultNoise(find_number_format(fmt), seed)
    moved = WeakSet[torch.nn.Module]()

    def move(module: torch.nn.Module, _: Any) -> None:
        if module in moved:
            return
        moved.add(module)
        for parameter in module.parameters(recurse=False):
            values = host_values(parameter)
            if values.dtype == np.float32:
                values[...] = noise(values, BINARY32)

    handle = register_module_forward_pre_hook(move)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def nudged() -> Iterator[None]:
    """Inside, the first update of each optimiser moves parameters on by a unit in the last place.

    So a run differs from itself by what no comparison can tell from rounding.
    """
    moved = WeakSet[torch.optim.Optimizer]()

    def move(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if optimizer in moved:
            return
        moved.add(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                values = host_values(parameter)
                if values.dtype == np.float32:
                    values[...] = moved_up(values)

    handle = register_optimizer_step_post_hook(move)
    try:
        yield
    finally:
        handle.remove()


def run_program(session: Session, program: Path | str, arguments: Sequence[str]) -> int:
    """Run a program, or a module by its name, in a session; the status that it exits with.

    Raises    ProgramError where the program raises; StoppedError where another replica has
              failed; PatternError for a policy with a pattern that matches no layer;
              KeyboardInterrupt as it is.
    """
    with session:
        try:
            if isinstance(program, str):
                return run_module(program, arguments)
            return run_file(program, arguments)
        except ProgramError as error:
            if isinstance(error.__cause__, (StoppedError, PatternError)):
                raise error.__cause__ from None
            raise
