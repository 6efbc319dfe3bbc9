"""The report of a run as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ipu.run.advice import Advice
from ipu.run.changes import scale_text
from ipu.run.judging import Declaration
from ipu.run.shadow import shadow_lines
from ipu.run.trials import Trial

__all__ = ["COUNTERS", "advice_lines", "report_lines", "trial_cells", "TRIAL_HEADS",
           "why_no_loss"]

#: Counters of a report and their heads in tables.
COUNTERS = {
    "OVERFLOW": "overflow", "INVALID": "invalid", "DIVBYZERO": "÷ 0", "UNDERFLOW": "underflow",
    "subnormals": "subnormal",
}
#: Rows of a table in a terminal.
_ROWS = 14
TRIAL_HEADS = ("way", "beside binary32", "final", "worse by", "pairs", "÷ 0", "invalid", "overflow",
               "underflow", "cycles", "bits")


def report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """What a run did, in lines."""
    rounding = "stochastic rounding" if report.get("stochastic_rounding") else "to nearest"
    changed = f", changed: {report['changes']}" if report.get("changes") else ""
    first = f" from step {report['first_step']}" if report.get("first_step") else ""
    yield (
        f"{report['steps']} steps{first} on {report['target']}, {report['policy']}, "
        f"{rounding}{changed}"
    )
    for pattern, names in report.get("by_order", {}).items():
        yield f"{pattern} of the policy: {', '.join(names)}"
    if "choices" in report:
        yield ", ".join(f"{name}={value}" for name, value in report["choices"].items())
    host = report["host"]
    yield (
        f"{report['operations']['computed_elements']:,} elements computed, {host['share']:.2%} of "
        f"them on the host; native operations: {report['native']}"
    )
    yield from _course_lines(report)
    for row in report["first"]:
        yield (
            f"first {COUNTERS[row['flag']]}: step {row['step']}, {row['operation']} in "
            f"{row['layer'] or 'outside of modules'} ({row['direction']}), {row['times']} results"
        )
    yield from _birth_lines(report)
    yield from _layer_lines(report["layers"])
    for constant in report["constants"][:_ROWS]:
        yield (
            f"constant {constant['value']:g} becomes {constant['becomes']} in "
            f"{constant['format']}: {constant['layer']} ({constant['direction']}), "
            f"{constant['times']} times" + (f", {constant['line']}" if constant.get("line") else "")
        )
    yield from report.get("inputs", ())
    scale = report["loss_scale"]
    if scale:
        best = "none, gradients overflow" if scale["best"] is None else scale_text(scale["best"])
        safe = "" if scale["highest_safe"] is None else (
            f", highest safe {scale_text(scale['highest_safe'])}"
        )
        yield (
            f"loss scale: present {scale_text(scale['present'])}, best {best}{safe} "
            f"(limited by {scale['limited_by']})"
            + (f"; {scale['unseen']:,} gradients are zero beside subnormal ones, of unknown size"
               if scale["unseen"] else "")
        )
    yield from _update_lines(report["swallowed"])
    yield from _operand_lines(report.get("operands", ()))
    yield from _uncovered_lines(report.get("uncovered", ()))
    for unit in report["units"]:
        if unit["products"] is None:
            yield f"unit {unit['unit']}: computed products, which are not counted for this target"
            continue
        yield (
            f"unit {unit['unit']}, {unit['verb']}: {unit['share']:.1%} of the multiply-adds, "
            f"{unit['products']} products"
        )
    yield from report.get("plan", ())
    yield from shadow_lines(report.get("shadow", {}))


def _birth_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Where numbers left their format, in order of time; what only carried them on."""
    births = report.get("births", ())
    for row in births[:_ROWS]:
        line = f", {row['line']}" if row["line"] else ""
        died = ", ".join(row["deaths"])
        yield (
            f"born: {row['kind']} in {row['operation']} of {row['layer'] or 'no module'} "
            f"({row['direction']}, step {row['step']}{line}), {row['count']:,} times"
            + (f"; harmless, it dies in {died}" if row["harmless"] else "")
        )
    if len(births) > _ROWS:
        yield f"… and {len(births) - _ROWS} more births"
    carried = {kind: n for kind, n in report.get("carried", {}).items() if n}
    if carried:
        yield "carried on by later operations: " + ", ".join(
            f"{n:,} of {kind}" for kind, n in carried.items()
        )


def _outside_lines(names: Sequence[str]) -> Iterator[str]:
    """What the run did not see."""
    yield from names[:_ROWS]
    if len(names) > _ROWS:
        yield f"… and {len(names) - _ROWS} more"


def _course_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """How the run went: whether it reached the machine, its end and its losses."""
    if report.get("unreached"):
        yield f"nothing was computed on the machine. {report['unreached']}"
    if report.get("note"):
        yield str(report["note"])
    yield from _outside_lines(report.get("outside", ()))
    if report.get("stopped"):
        yield f"the program stopped: {report['stopped']}"
    losses = report["losses"]
    if losses:
        yield f"loss {losses[0]:.4g} → {losses[-1]:.4g}"
    elif why_no_loss(report):
        yield f"no losses: {why_no_loss(report)}"
    if report.get("uncounted"):
        yield (
            f"{report['uncounted']} backward passes began at a loss that is not finite: after such "
            "a loss nothing is counted until one is finite"
        )


def why_no_loss(report: Mapping[str, Any]) -> str:
    """Why a run that trained on the machine tells no losses; "" where it tells some.

    >>> why_no_loss({"losses": [], "steps": 2, "unread": ["net/Mul"]}).partition(":")[0]
    'nothing reads net/Mul, so it is not computed'
    """
    if report["losses"] or not report["steps"] or report.get("unreached"):
        return ""
    if report.get("unread"):
        return (
            f"nothing reads {', '.join(report['unread'])}, so it is not computed: return the loss, "
            "print it or enqueue it"
        )
    return "no backward pass begins at a tensor with one element"


def _layer_lines(layers: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Iterator[str]:
    """A table of the rows with exceptions, the worst first."""
    rows = [
        (name or "-", direction, row) for name, directions in layers.items()
        for direction, row in directions.items() if any(row[c] for c in COUNTERS)
    ]
    if not rows:
        return
    rows.sort(key=lambda r: [-r[2][c] for c in ("DIVBYZERO", "INVALID", "OVERFLOW", "UNDERFLOW")])
    shown = rows[:_ROWS]
    width = max(len("layer"), *(len(name) for name, _, _ in shown))
    heads = "".join(f"{head:>11}" for head in ("results", *COUNTERS.values()))
    yield f"{'layer':<{width}}  {'direction':<10}{heads}"
    for name, direction, row in shown:
        cells = "".join(f"{row[c]:>11,}" for c in ("results", *COUNTERS))
        yield f"{name:<{width}}  {direction:<10}{cells}"
    if len(rows) > len(shown):
        yield f"… and {len(rows) - len(shown)} more rows"


def _update_lines(swallowed: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    nonzero = sum(row["nonzero"] for row in swallowed.values())
    if not nonzero:
        return
    lost = sum(row["swallowed"] for row in swallowed.values())
    worst = max(swallowed, key=lambda name: swallowed[name]["share"])
    share, largest = f"{lost / nonzero:.1%}", f"{swallowed[worst]['share']:.1%}"
    where = "" if share == largest else f"; the largest share in {worst}, {largest}"
    yield f"updates swallowed by rounding: {share} of {nonzero:,}{where}"


def _operand_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A table of operands in blocks, those with the least signal first."""
    if not rows:
        return
    shown = sorted(rows, key=lambda row: (row["snr"] is None, row["snr"] or 0.0))[:_ROWS]
    width = max(len("layer"), *(len(row["layer"]) for row in shown))
    heads = ("SNR, dB", "gain", "clipped", "flushed", "0 scale", "lag")
    yield f"{'layer':<{width}}  {'product':<16}{'operand':<8}" + "".join(f"{h:>9}" for h in heads)
    for row in shown:
        lag = "" if row["lag"] is None else f"{row['lag'][1]:.3g}"
        snr = "exact" if row["snr"] is None else f"{row['snr']:.2f}"
        yield (
            f"{row['layer']:<{width}}  {row['product']:<16}{row['operand']:<8}{snr:>9}"
            f"{row['gain']:>9.4f}{row['clipped']:>9.2%}{row['flushed']:>9.2%}"
            f"{row['zero_scale']:>9.2%}{lag:>9}"
        )
    if len(rows) > len(shown):
        yield f"… and {len(rows) - len(shown)} more operands"


def _uncovered_lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Products that no recipe covers, by operation."""
    for operation in dict.fromkeys(row["operation"] for row in rows):
        of_it = [row for row in rows if row["operation"] == operation]
        layers = ", ".join(row["layer"] or "-" for row in of_it[:3])
        more = f" and {len(of_it) - 3} more" if len(of_it) > 3 else ""
        yield (
            f"no recipe covers {operation} of {layers}{more}: {sum(r['times'] for r in of_it)} "
            "products in the layer's own format"
        )


def advice_lines(
    items: Sequence[Advice], trials: Sequence[Trial], declared: Declaration
) -> Iterator[str]:
    """Advice with its evidence, and the table of what was tried."""
    for number, item in enumerate(items, 1):
        yield f"{number}. {item.what}."
        yield f"   {item.evidence}"
        if item.ways:
            yield f"   try: {', '.join(str(way) for way in item.ways)}"
    if not items:
        yield "nothing in this run speaks for a change"
    if not trials:
        return
    yield f"declared before the trials ({declared.digest}): {declared}"
    table = [TRIAL_HEADS, *(trial_cells(trial) for trial in trials)]
    widths = [max(len(row[i]) for row in table) for i in range(len(TRIAL_HEADS))]
    for row in table:
        first, *others = zip(row, widths, strict=True)
        yield f"{first[0]:<{first[1]}}" + "".join(f"  {cell:>{width}}" for cell, width in others)


def trial_cells(trial: Trial) -> tuple[str, ...]:
    """A row of the table of trials."""
    counts = [f"{trial.counts.get(name, 0):,}" for name in (
        "DIVBYZERO", "INVALID", "OVERFLOW", "UNDERFLOW")]
    return (
        str(trial.way), str(trial.judged), f"{trial.value:.4g}", trial.judged.difference,
        str(trial.judged.pairs or ""), *counts,
        f"× {trial.cycles:.2f}" if trial.cycles else "–", f"× {trial.bits:.2f}",
    )

