"""Six ways to choose one exponent, and what each costs.

A scale of powers of two is chosen from the largest magnitude of 32 elements: floor clips what lies
above the largest value times the scale, ceil and rceil waste codes, even stands between them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fpsim.inspect.blocks import block_profile
from fpsim.records.blocks import find_block
from ipu.experiments.blocks.tensors import KINDS, QUANTISERS, bars, tensor
from ipu.experiments.lab.result import Result, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUESTION = "How much does the rule for the scale matter in MXFP8, MXFP4 and NVFP4?"
BUDGET = 10
DEFAULT = False

#: Formats with the rules that each may have.
RULES = {
    "mxfp8": ("floor", "even", "rceil", "ceil", "nearest"),
    "mxfp4": ("floor", "even", "rceil", "ceil", "nearest"),
    "nvfp4": ("two_level", "two_level_eps", "mae46", "mse46"),
    "nvfp4-2d": ("two_level",),
}


def run(quick: bool, seed: int) -> Result:
    size = 1024
    rows: list[Row] = []
    for kind in KINDS[:1] if quick else KINDS:
        x = tensor(kind, (size, size), seed)
        for name, rules in RULES.items():
            for rule in rules:
                bound = 256.0 if rule.endswith("46") else 448.0
                block = replace(find_block(name), scale_rule=rule, bound=bound)
                p = block_profile(x, block)
                rows.append({
                    "data": kind, "block": name, "rule": rule, "sqnr": p.sqnr, "gain": p.gain,
                    "clipped": p.clipped, "flushed": p.flushed, "zero_scales": p.zero_scales,
                })
    parameters = {"shape": [size, size], "elements": "bfloat16"}
    return Result(rows, _answer(rows), "rounding=RNE", parameters, (QUANTISERS,))


def _sqnr(rows: list[Row], block: str, rule: str, data: str = "normal") -> float:
    (row,) = Result(rows, "", "").select(block=block, rule=rule, data=data)
    return float(row["sqnr"])  # type: ignore[arg-type]


def _answer(rows: list[Row]) -> str:
    floor, rceil = (_sqnr(rows, "mxfp8", rule) for rule in ("floor", "rceil"))
    four = {rule: _sqnr(rows, "mxfp4", rule) for rule in RULES["mxfp4"]}
    best = max(four, key=four.__getitem__)
    nvfp4, plain = _sqnr(rows, "nvfp4", "two_level"), four["floor"]
    return (
        f"On normal numbers rceil gains {rceil - floor:.2f} dB over floor in MXFP8 ({floor:.2f} to "
        f"{rceil:.2f}); in MXFP4 {best} is best, {four[best] - plain:.2f} dB above floor's "
        f"{plain:.2f}. The format matters more: NVFP4 has {nvfp4:.2f} dB, "
        f"{nvfp4 - plain:.2f} more than MXFP4, and {_sqnr(rows, 'nvfp4-2d', 'two_level'):.2f} with "
        "16 x 16 blocks."
    )


def plot(result: Result) -> Figure:
    from ipu.run.pages.drawing import new_figure

    figure, (ratio, clipped) = new_figure(11, 4.6, mosaic="AB")
    names = [f"{name} {rule}" for name, rules in RULES.items() for rule in rules]
    kinds = list(dict.fromkeys(str(row["data"]) for row in result.rows))
    bars(ratio, names, {
        kind: [float(row["sqnr"]) for row in result.select(data=kind)]  # type: ignore[arg-type]
        for kind in kinds
    })
    ratio.set(title="Signal to noise", ylabel="SQNR in dB")
    bars(clipped, names, {
        what: [100 * float(row[what]) for row in result.select(data="normal")]  # type: ignore[arg-type]
        for what in ("clipped", "flushed")
    })
    clipped.set(title="Elements of normal data", ylabel="share in %")
    return figure
