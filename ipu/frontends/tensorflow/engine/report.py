"""The report of a run: what the machine was, what it did, and what it rests on."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import fpsim
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.machine.control import dump

__all__ = ["report"]


def report(machine: Machine) -> dict[str, Any]:
    """What ran on a machine, as a mapping.

    layers       counters by layer (the scope of nodes) and direction, if the machine counts.
    constants    numbers that did not fit into the format that they were used in.
    launches     calls of the device; iterations of its training loops.
    status       $FP_CTL and $FP_STS.
    versions     of fpsim, TensorFlow and numpy.
    assumed      what the results rest on beyond the machine's own rules.
    """
    choices = machine.choices
    return {
        "policy": str(machine.policy),
        "target": machine.device.target.name,
        "seed": machine.seed,
        "ties": choices.ties,
        "launches": machine.launches,
        "iterations": machine.iteration,
        "layers": machine.account.layers(machine.device.counts),
        "constants": machine.account.summary()["constants"],
        "status": dump(machine.device.control, machine.status),
        "versions": {
            "fpsim": fpsim.__version__, "tensorflow": tf.__version__, "numpy": np.__version__,
        },
        "assumed": f"the graph as TensorFlow {tf.__version__} builds it is what the vendor's "
        "compiler executes, without XLA's rewriting",
    }  # fmt: skip
