"""The report of a run: what the machine was, what it did, and what it rests on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import tensorflow as tf

import fpsim
from ipu.frontends.tensorflow.engine.machine import Machine
from ipu.machine.control import dump
from ipu.run.advising import Advised, advise
from ipu.run.changes import NONE
from ipu.run.report import describe
from ipu.run.text import Report
from ipu.run.ways import Way

__all__ = ["UNREACHED", "advice", "report"]

#: What a program lacks of which nothing reaches the machine.
UNREACHED = (
    "TensorFlow computes what is not sent to it: make and train a model of Keras inside of "
    "`with ipu.ipu_strategy.IPUStrategy().scope():`, call other functions by `strategy.run`, and "
    "build programs of TensorFlow 1 by `ipu.ipu_compiler.compile`; "
    "`from tensorflow.python import ipu` gives the names"
)


def report(machine: Machine) -> Report:
    """What ran on a machine, as a mapping whose text is for a terminal.

    It has the keys that the report of a PyTorch program has (docs/pytorch.md), and

    launches      calls of the device.
    iterations    of its loops; those that train nothing too.
    replicas      that ran in step, in this process.
    unreached     what to add to a program of which nothing reached the machine; "" for others.
    host_call     what an estimator's host call moves in a step, by data types; without one, None.
    assumed       what the results rest on beyond the machine's own rules.
    """
    choices = machine.choices
    about = {
        "policy": str(machine.policy),
        "note": machine.device.target.note,
        "stochastic_rounding": machine.device.control.esr,
        "changes": "",
        "steps": machine.step,
        "seed": machine.seed,
        "ties": choices.ties,
        "launches": machine.launches,
        "iterations": machine.iterations,
        "replicas": machine.replicas,
        "unreached": "" if machine.launches else UNREACHED,
        "host_call": machine.host_call,
        "status": dump(machine.device.control, machine.status),
        "versions": {
            "fpsim": fpsim.__version__, "tensorflow": tf.__version__, "numpy": np.__version__,
        },
        "assumed": f"the graph as TensorFlow {tf.__version__} builds it is what the vendor's "
        "compiler executes, without XLA's rewriting",
    }
    return Report(describe(machine.account, machine.device, machine.recorder, about))


def advice(machine: Machine, told: Report) -> Advised:
    """What to change, with the evidence; ways that change a program from outside are left out."""
    way = Way(machine.policy, machine.device.control.esr)
    items = [
        replace(item, ways=tuple(way for way in item.ways if _runs(way)))
        for item in advise(told, way).items
    ]
    return Advised(items)


def _runs(way: Way) -> bool:
    """Whether a program of TensorFlow can be run in this way: formats and rounding alone."""
    return replace(way.changes, halves_by_policy=False) == NONE
