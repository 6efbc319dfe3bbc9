"""A run of a front end that tests make by hand: an account, a device, a recorder."""

from __future__ import annotations

import numpy as np

from fpsim import BINARY16
from ipu.machine import Device
from ipu.run.account import Account, counted_name
from ipu.run.recorder import Recorder
from ipu.run.report import describe
from ipu.run.showing import Report

__all__ = ["born", "make_report", "quiet_report", "trained_report"]

ABOUT = {
    "policy": "p=f16,c=f16,part=f32", "stochastic_rounding": False, "changes": "", "steps": 2,
    "status": "", "versions": {"fpsim": "0"},
}


def make_report() -> Report:
    """Two layers: products, gradients near the smallest numbers, an optimiser that divides by 0."""
    account, device, recorder = Account(), Device(count=True), Recorder()
    rng = np.random.default_rng(0)
    x = device.from_host(rng.normal(size=(4, 16)), BINARY16)
    for layer in ("net.a", "net.b"):
        with device.naming(counted_name(layer, "forward")):
            recorder.result(device.tensor, device.matmul(x, x.T))
        account.add("machine", "aten.mm", 16)
        with device.naming(counted_name(layer, "backward")):
            small = device.from_host(rng.normal(size=(4, 16)) * 1e-4, BINARY16)
            recorder.result(device.tensor, device.multiply(small, small))
        account.add("machine", "aten.mul", 64)
        before, term = np.ones(8, np.float32), np.full(8, 1e-4, np.float32)
        term[:2] = 0.25
        recorder.update(layer, 0, BINARY16, before, term, np.where(term > 0.1, 1.25, 1.0))
    with device.naming(counted_name("optimizer", "optimizer")):
        device.divide(x, device.from_host(np.zeros((4, 16)), BINARY16))
    account.constant("optimizer", "optimizer", BINARY16, 1e-8, "zero")
    account.add("host", "aten.cos", 1)
    assert device.counts is not None
    recorder.step_done(0, device.counts)
    recorder.births.untold("divide", ("optimizer", "optimizer", 0), "DIVBYZERO", 64)
    next(iter(recorder.births)).weights = "net.a"
    recorder.loss(0, 2.0)
    recorder.loss(1, float("nan"))
    return Report(describe(account, device, recorder, ABOUT))


def trained_report() -> Report:
    """Of a run that computed on the machine and did not count."""
    report = quiet_report()
    report["operations"]["machine"] = 1
    return report


def quiet_report() -> Report:
    """Of a run that did not count."""
    return Report(describe(Account(), Device(), None, ABOUT))


def born(kind: str, **about: object) -> dict[str, object]:
    """A birth as a report has it."""
    return {
        "number": 0, "kind": kind, "step": 0, "layer": "net.a", "direction": "forward",
        "operation": "aten.mul", "format": "binary16", "line": "", "detail": "", "count": 3,
        "results": 8, "causes": [], "deaths": {}, "harmless": False, "weights": "",
        "repeated": 0, "trained_with": True,
    } | about
