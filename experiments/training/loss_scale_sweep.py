"""Loss scales from 1 to 2^24: which gradients underflow, which overflow, where the traps stop.

The digits network in FP16 before training and after some epochs of mixed training. For each scale
the gradients of the same batches are computed; an entry has underflowed if it is zero while the
FP32 machine, with the same FP16 weights, finds it different from zero; it has overflowed if it
saturated. Then the traps are armed and the scale raised until the machine stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fpsim import BINARY16, Array, FloatingPointTrap
from ipu.experiments.lab.machine import units_of
from ipu.experiments.lab.progress import progress
from ipu.experiments.lab.result import Collected, Result, Row, UnitUsed
from ipu.experiments.training import digits
from ipu.experiments.training.digit_runs import BATCH, NETWORK
from ipu.learn.loss_scale import NoLossScale, StaticLossScale, find_loss_scale
from ipu.learn.nn import dense, relu
from ipu.learn.optim import SGD
from ipu.learn.policy import FP16, FP32, MIXED, Policy
from ipu.learn.tensor import Tensor, gradients
from ipu.learn.train import Trainer
from ipu.machine import POPLAR_STRUCT_DEFAULT, POWER_ON, FpCtl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTION = "Which loss scale does the digits network need in FP16, and which is too much?"
BUDGET = 20
DEFAULT = True

EXPONENTS = range(25)
RATE, MOMENTUM = 0.05, 0.9
#: Gradients along the backward pass, the last layer's first.
TENSORS = ("logits", "output weights", "output biases", "activations", "hidden weights",
           "hidden biases")
WEIGHTS = ("all_vars/hidden/weights", "all_vars/hidden/biases", "all_vars/output/weights",
           "all_vars/output/biases")
Values = dict[str, NDArray[np.float64]]
Look = dict[str, Any]
DOTTED: Look = {"linewidth": 0.9, "linestyle": ":"}
MARKED: Look = {"marker": "o", "markersize": 4}


def run(quick: bool, seed: int) -> Result:
    epochs, n_batches = (1, 2) if quick else (20, 8)
    collected = Collected()
    for state, weights in _states(seed, epochs):
        probe = ScaleProbe(weights, seed, n_batches)
        rows = [*probe.sweep(state), {"part": "limit", **probe.limit()}]
        collected.add(rows, probe.units, state=state)
    parameters = {"network": NETWORK, "batch": BATCH, "batches": n_batches,
                  "epochs of mixed training": epochs, "learning rate": RATE,
                  "momentum": MOMENTUM}
    policy = f"{FP16},rounding=RNE,loss_scale=1…2^24"
    return Result(collected.rows, _answer(collected.rows), policy, parameters, collected.units)


def _states(seed: int, epochs: int) -> Iterator[tuple[str, Values]]:
    """Parameters as they begin, and after training with FP32 parameters."""
    data = digits.load()
    trainer = Trainer(digits.network, SGD(RATE, MOMENTUM), policy=MIXED, seed=seed,
                      loss_scale=StaticLossScale(256.0))
    learn, _ = data.split(seed)
    images = trainer.device.from_host(data.images, BINARY16)
    trainer.forward(images[learn[:1]])
    yield "before training", _parameters(trainer)
    for epoch in progress(range(1, epochs + 1), "training"):
        for batch in digits.batches(learn, BATCH, seed, epoch):
            trainer.step(images[batch], data.labels[batch])
    yield f"after {epochs} epoch{'s' if epochs > 1 else ''}", _parameters(trainer)


def _parameters(trainer: Trainer) -> Values:
    return {name: v.array.values.astype(np.float64) for name, v in trainer.variables.items()}


class ScaleProbe:
    """The gradients of fixed parameters and batches, for any loss scale and control bits."""

    def __init__(self, weights: Values, seed: int, n_batches: int) -> None:
        self.data = digits.load()
        learn, _ = self.data.split(seed)
        self.batches = list(digits.batches(learn, BATCH, seed, epoch=0))[:n_batches]
        self.weights = weights
        self.units: tuple[UnitUsed, ...] = ()

    def gradients(self, scale: float, policy: Policy, control: FpCtl = POWER_ON) -> Values:
        """Every gradient entry of all batches, by tensor."""
        tensors: dict[str, Tensor] = {}

        def network(x: Tensor) -> Tensor:
            tensors["activations"] = dense(x, digits.HIDDEN, "hidden")
            tensors["logits"] = dense(relu(tensors["activations"]), digits.CLASSES, "output")
            return tensors["logits"]

        factor = NoLossScale() if scale == 1 else StaticLossScale(scale)
        trainer = Trainer(network, SGD(RATE), policy=policy, control=control, loss_scale=factor)
        images = trainer.device.from_host(self.data.images, policy.activations)
        self._load(trainer, images)
        entries: dict[str, list[NDArray[np.float64]]] = {name: [] for name in TENSORS}
        for batch in self.batches:
            scaled = factor.scale(trainer.loss(images[batch], self.data.labels[batch]))
            layers = [trainer.variables[name] for name in WEIGHTS]
            sources: list[Tensor] = [
                tensors["logits"], *layers[2:], tensors["activations"], *layers[:2]
            ]
            one = trainer.device.context(scaled.dtype).constant(1.0)
            for name, gradient in zip(TENSORS, gradients(scaled, sources, one), strict=True):
                assert gradient is not None
                entries[name].append(gradient.values.astype(np.float64).reshape(-1))
        self.units = units_of(trainer.device)
        return {name: np.concatenate(parts) for name, parts in entries.items()}

    def _load(self, trainer: Trainer, images: Array) -> None:
        """The parameters, rounded to FP16, into a model of any policy."""
        trainer.forward(images[:1])
        for name, variable in trainer.variables.items():
            half = trainer.device.from_host(self.weights[name], BINARY16)
            variable.assign(trainer.device.from_host(half.carrier, variable.dtype))

    def sweep(self, label: str) -> Iterator[Row]:
        """Per scale and tensor: shares of the entries that underflow, lose digits, overflow."""
        exact = self.gradients(1.0, FP32)
        for exponent in progress(EXPONENTS, f"scales {label}", len(EXPONENTS)):
            scaled = self.gradients(2.0**exponent, FP16)
            for name in TENSORS:
                size, here = np.abs(scaled[name]), exact[name] != 0
                tiny = (size < BINARY16.smallest_normal) & (size > 0)
                yield {
                    "part": "sweep", "exponent": exponent, "tensor": name,
                    "underflow": float(((size == 0) & here).sum() / here.sum()),
                    "subnormal": float((tiny & here).sum() / here.sum()),
                    "overflow": float((size >= BINARY16.max).mean()),
                }

    def limit(self) -> Row:
        """The highest scale that runs with all traps armed, and what stops the next."""
        stops: list[FloatingPointTrap] = []

        def step(scale: float) -> None:
            try:
                self.gradients(scale, FP16, POPLAR_STRUCT_DEFAULT)
            except FloatingPointTrap as trap:
                stops.append(trap)
                raise

        best = find_loss_scale(step, EXPONENTS)
        row: Row = {"highest": best}
        if not stops:
            return row
        index = ", ".join(str(i) for i in stops[0].index)
        where = stops[0].dump.rpartition("in all_vars/")[2] or "loss"
        status = next(line for line in stops[0].dump.splitlines() if line.startswith("$FP_STS"))
        return {**row, "stopped_by": f"{stops[0].operation} [{index}] in {where}", "dump": status}


def _answer(rows: list[Row]) -> str:
    table = Result(rows, "", "")
    before, after = table.select(part="limit")
    trained = after["state"]
    worst = max(
        table.select(part="sweep", state=trained, exponent=0),
        key=lambda row: float(str(row["underflow"])),
    )["tensor"]

    def lost(exponent: int | None) -> str:
        where = table.select(part="sweep", state=trained, exponent=exponent, tensor=worst)
        return f"{100 * float(str(where[0]['underflow'])):.1f} %" if where else "–"

    return (
        f"The highest scale that runs without overflow is {_power(before['highest'])} before "
        f"training and {_power(after['highest'])} {trained}, when the gradient of the {worst} "
        f"suffers most: {lost(0)} of its entries underflow without scaling, {lost(8)} with the "
        f"usual 256, {lost(_exponent(after['highest']))} at the highest scale. The next scale is "
        f"stopped in {after.get('stopped_by')}."
    )


def _exponent(scale: object) -> int | None:
    return None if scale is None else int(np.log2(float(str(scale))))


def _power(scale: object) -> str:
    exponent = _exponent(scale)
    return "no power of two" if exponent is None else f"2^{exponent}"


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    states = list(dict.fromkeys(str(row["state"]) for row in result.rows))
    figure, panels = new_figure(12.5, 7.6, mosaic="AB;CD", sharex=True, height_ratios=[1.25, 1])
    for column, state in enumerate(states):
        above, below = panels[column], panels[2 + column]
        _plot_share(above, result, state, "subnormal", DOTTED)
        _plot_share(above, result, state, "underflow", MARKED)
        _plot_share(below, result, state, "overflow", MARKED)
        above.set(
            title=f"Gradients {state}", ylabel="entries that underflow\nor become subnormal (%)"
        )
        below.set(xlabel="loss scale", ylabel="entries that overflow (%)")
        _mark_limit(above, below, result, state)
    panels[2].legend(fontsize=9.5, loc="center left", title="gradient of", alignment="left")
    _explain_lines(panels[1])
    return figure


def _colors() -> dict[str, str]:
    from ipu.run.pages import drawing

    six = (drawing.BLACK, drawing.ORANGE, drawing.RED, drawing.SKY, drawing.BLUE, drawing.GREEN)
    return dict(zip(TENSORS, six, strict=True))


def _plot_share(axes: Axes, result: Result, state: str, what: str, look: Look) -> None:
    """One line per tensor, in per cent; shares of zero are not drawn."""
    for name, color in _colors().items():
        where = {"part": "sweep", "state": state, "tensor": name}
        share = 100 * result.column(what, **where)
        shown = np.where(share > 0, share, np.nan)
        axes.plot(result.column("exponent", **where), shown, color=color, label=name, **look)
    axes.set_yscale("log")
    axes.set_ylim(0.003, 150)
    axes.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
    axes.set_xlim(-0.5, EXPONENTS[-1] + 0.5)
    axes.set_xticks(range(0, 25, 4), [f"$2^{{{e}}}$" for e in range(0, 25, 4)])


def _explain_lines(axes: Axes) -> None:
    """What solid and dotted lines are, in a legend."""
    looks = {"underflow to zero": MARKED, "become subnormal": DOTTED}
    handles = [
        axes.plot([], [], color="#444444", label=label, **look)[0] for label, look in looks.items()
    ]
    axes.legend(handles=handles, fontsize=9.5, loc="upper right")


def _mark_limit(above: Axes, below: Axes, result: Result, state: str) -> None:
    """Where the armed traps stop the machine."""
    limit = _exponent(result.select(part="limit", state=state)[0]["highest"])
    if limit is None:
        return
    for axes in (above, below):
        axes.axvspan(limit + 0.5, EXPONENTS[-1] + 0.5, color=("#D55E00", 0.15), zorder=0)
    note = f"armed traps stop the\nmachine above $2^{{{limit}}}$"
    below.annotate(note, (limit + 0.5, 0.9), (-8, 0),
                   ha="right", va="top", fontsize=9.5, xycoords=("data", "axes fraction"),
                   textcoords="offset points")
