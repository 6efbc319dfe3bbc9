"""A plan explained in words: how busy its IPUs are, what they hold, what would make it fit.

Figures are those of a declared model (`ipu.plan.memory`, `ipu.plan.cycles`). Advice is that
of the maker's guide on performance, as far as a plan shows whether it applies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fpsim.records.evidence import weakest
from ipu.machine.target import MK2, Target
from ipu.plan.arguments import OFFLOADS
from ipu.plan.cycles import Event, Rates, program_cycles, remote_share, shares, timeline
from ipu.plan.measures import full_slots, guide_stash
from ipu.plan.memory import (
    EXCHANGE_CODE,
    LIVES,
    OutOfMemoryError,
    Peak,
    StageFigures,
    always_live,
    capacity,
    figures_of,
    guide_io_tiles,
    io_tiles_for,
    lives,
    peaks,
)
from ipu.plan.plan import Plan
from ipu.plan.schedule import Schedule, required_multiple

__all__ = [
    "TECHNIQUES", "Alternative", "Technique", "alternatives", "check_fit", "explain", "few_rounds",
]

#: Variables that a refusal names.
_NAMED = 3
#: A share of cycles, or of slots, that is worth a remark.
_NOTABLE = 0.25
#: Micro-batches for each stage after which a full pipeline has repeated itself.
_ROUNDS = 8


class Alternative(NamedTuple):
    """A change of a plan and the most that one of its IPUs would hold."""

    change: str
    plan: Plan
    bytes: int


class Technique(NamedTuple):
    """What the maker's guide says a technique is good for, and whether a plan uses it.

    used    None: a plan does not know; it is told where memory is short.
    """

    name: str
    good_for: str
    not_for: str
    used: Callable[[Plan], bool] | None


TECHNIQUES = (
    Technique(
        "pipeline", "large models, large global batches", "low-latency inference",
        lambda plan: plan.n_stages > 1 and plan.schedule is not Schedule.SEQUENTIAL,
    ),
    Technique(
        "replicas", "models that fit few IPUs", "heavy host I/O and preprocessing",
        lambda plan: plan.replicas > 1,
    ),
    Technique(
        "I/O tiles", "I/O-bound models", "models that nearly fill the memory",
        lambda plan: plan.io_tiles > 0,
    ),
    Technique(
        "sharded state", "very large models, large optimiser states",
        "models without replicas, or whose exchange is busy with data",
        lambda plan: plan.shard_state,
    ),
    Technique(
        "reduced precision", "most deep learning models",
        "critical parts of a model, whose layers may need more digits", None,
    ),
    Technique(
        "other schemes (domain sharding, tensor parallelism)",
        "very large models or code, stages that depend on each other",
        "frameworks, which generally do not support them: a last resort", None,
    ),
)


def few_rounds(plan: Plan) -> Plan:
    """The plan with a few of its micro-batches: a pipeline repeats itself once it is full.

    >>> few_rounds(Plan([abs, abs], count=512)).count
    16
    """
    options = {"training": plan.training, "io_overlap": plan.io_tiles > 0}
    multiple = required_multiple(plan.schedule, plan.n_stages, plan.places, **options)
    few = -(-_ROUNDS * plan.n_stages // multiple) * multiple
    return replace(plan, count=few) if few < plan.count else plan


def _most(plan: Plan, figures: Sequence[StageFigures]) -> Peak:
    """The largest peak of an IPU, the first of equals; the slot behind the last is -1."""
    plan = few_rounds(plan)
    all_peaks = peaks(lives(plan, figures)).values()
    peak = max(all_peaks, key=lambda peak: peak.bytes, default=Peak(0, 0, 0, {}))
    return peak._replace(slot=-1) if peak.slot == plan.slots else peak


def alternatives(plan: Plan, figures: Sequence[StageFigures]) -> tuple[Alternative, ...]:
    """Changes that leave every bit as it is and lower the peak, the lowest first."""
    away = sorted(plan.offloaded)
    changes: list[dict[str, Any]] = []
    if plan.training and not plan.recomputation:
        changes.append({"recompute": True})
    if plan.remote_buffers and plan.training:
        changes += [{"offload": (*away, kind)} for kind in OFFLOADS if kind not in away]
    if plan.shared_gradients == "variable":
        changes += [{"schedule": s.value} for s in Schedule if s is not plan.schedule]
    if plan.replicas > 1 and not plan.shard_state:
        changes.append({"shard_state": True})
    changes += [
        {**one, **other} for one in changes[:1] for other in changes[1:] if "recompute" in one
    ]
    now = _most(plan, figures).bytes
    rows = []
    for change in changes:
        try:
            other = replace(plan, **change)
        except ValueError:
            continue  # the plan refuses this combination
        size = _most(other, figures).bytes
        if size < now:
            words = ", ".join(f"{name}={value!r}" for name, value in change.items())
            rows.append(Alternative(words, other, size))
    return tuple(sorted(rows, key=lambda row: row.bytes))


def check_fit(plan: Plan, figures: Sequence[StageFigures], target: Target = MK2) -> None:
    """Refuses a plan that needs more memory than an IPU has, unless check_memory is False.

    Raises    OutOfMemoryError that says where, how much, what fills it, and what would fit.
    """
    room = capacity(plan, target)
    peak = _most(plan, figures)
    if not plan.check_memory or peak.bytes <= room:
        return
    fitting = [
        row for row in alternatives(plan, figures) if row.bytes <= capacity(row.plan, target)
    ]
    advice = f"use {_gentlest(fitting).change}, or" if fitting else f"use {_smaller(peak)}, or"
    raise OutOfMemoryError(
        f"out of memory: the plan needs {peak.bytes} bytes on IPU {peak.ipu} ("
        f"{_where(plan, peak)}), target={target.name} has {room}; {_filled(plan, figures, peak)}; "
        f"{advice} check_memory=False to run it all the same"
    )


def _filled(plan: Plan, figures: Sequence[StageFigures], peak: Peak) -> str:
    """What fills an IPU: kinds of tensors, largest first, with their lives; its variables."""
    kinds = sorted(peak.by_kind.items(), key=lambda item: -item[1])
    texts = [f"{kind} {size} ({LIVES[kind]})" for kind, size in kinds]
    stages_there = [(e, f) for e, f in figures_of(plan, figures).values() if e.ipu == peak.ipu]
    stages = ", ".join(str(entry.stage) for entry, _ in stages_there)
    named = sorted((row for _, f in stages_there for row in f.largest), key=lambda row: -row[1])
    largest = ", ".join(f"{name} {size}" for name, size in named[:_NAMED])
    return (
        f"stage{'s' * (len(stages_there) > 1)} {stages}: {', '.join(texts)}"
        + (f"; largest variables, with accumulators and state: {largest}" if largest else "")
    )


def _smaller(peak: Peak) -> str:
    """What would help where no change of the plan alone does."""
    of_batches = sum(peak.by_kind.get(kind, 0) for kind in ("activations", "fifo", "tape", "io"))
    if 2 * of_batches > peak.bytes:
        return "smaller micro-batches, or more stages on more IPUs"
    return "more stages on more IPUs"


def _gentlest(rows: Sequence[Alternative]) -> Alternative:
    """The one with the fewest changes; of these the one that holds most, which costs least."""
    return max(rows, key=lambda row: (-row.change.count("="), row.bytes))


def _where(plan: Plan, peak: Peak) -> str:
    return "in the update" if peak.slot in (-1, plan.slots) else f"in slot {peak.slot}"


def explain(
    plan: Plan,
    figures: Sequence[StageFigures],
    target: Target = MK2,
    rates: Rates | None = None,
) -> str:
    """What a plan does with its IPUs' time and memory, and what else would fit.

    Units     bytes, cycles of the declared model.
    Raises    OutOfMemoryError as `check_fit`.
    """
    check_fit(plan, figures, target)
    rates = rates or Rates(target)
    events = timeline(plan, figures, rates)
    lines = [str(plan), "", *_time(plan, figures, events), "", *_memory(plan, figures, target)]
    lines += ["", *_advice(plan, figures, events, target)]
    lines.append(f"cycles are {weakest(rates.facts)}: {'; '.join(map(str, rates.facts[1:]))}")
    return "\n".join(lines)


def _time(plan: Plan, figures: Sequence[StageFigures], events: Sequence[Event]) -> list[str]:
    cost = program_cycles(plan, figures)
    busy = plan.utilisation(cost)
    total = max((e.start + e.cycles for e in events), default=0)
    lines = [
        f"utilisation {busy:.1%} of the slots' {plan.cycles(cost):.0f} cycles, bubble "
        f"{1 - busy:.1%}; with copies, transfers and the update {total:.0f} cycles",
        f"a micro-batch takes {plan.latency} slots",
    ]
    for ipu, share in shares(events).items():
        lanes = [f"{lane} {n / share.total:.1%}" for lane, n in share.by_lane.items() if n]
        lines.append(f"IPU {ipu}: {', '.join(lanes)}, idle {share.idle / share.total:.1%}")
    return lines


def _memory(plan: Plan, figures: Sequence[StageFigures], target: Target) -> list[str]:
    room = capacity(plan, target)
    lines = []
    rows = lives(plan, figures)
    always = always_live(rows)
    for ipu, peak in peaks(rows).items():
        kinds = sorted(peak.by_kind.items(), key=lambda item: -item[1])
        parts = ", ".join(f"{kind} {size}" for kind, size in kinds)
        lines.append(
            f"IPU {ipu}: peak {peak.bytes} bytes {_where(plan, peak)}, {peak.bytes / room:.1%} of "
            f"{room}: {parts}; {always[ipu]} bytes always live"
        )
    if plan.training:
        held = " ".join(map(str, plan.stash.held))
        lines.append(f"micro-batches held between slots, by stage: {held}")
    if plan.training and plan.n_stages > 1 and plan.schedule is not Schedule.SEQUENTIAL:
        guide = " ".join(map(str, guide_stash(plan.schedule, plan.n_stages)))
        lines.append(f"the guide's rule for {plan.n_stages} stages says {guide}")
    for row in alternatives(plan, figures):
        fits = "fits" if row.bytes <= capacity(row.plan, target) else "does not fit"
        lines.append(f"with {row.change}: {row.bytes} bytes, {fits}")
    return lines


def _advice(
    plan: Plan, figures: Sequence[StageFigures], events: Sequence[Event], target: Target
) -> list[str]:
    is_short = _most(plan, figures).bytes > (1 - _NOTABLE) * capacity(plan, target)
    lines = [
        f"{t.name}: good for {t.good_for}; not for {t.not_for}" for t in TECHNIQUES
        if (is_short if t.used is None else t.used(plan))
    ]
    ramp = 1 - len(full_slots(plan.programs)) / plan.slots
    if plan.n_stages > 1 and plan.schedule is not Schedule.SEQUENTIAL and ramp > _NOTABLE:
        lines.append(
            f"{ramp:.0%} of the slots fill or drain the pipeline; count={4 * plan.count} has fewer"
        )
    lines += _balance(plan, figures)
    lines += _exchange_code(plan)
    share = remote_share(events)
    if share > _NOTABLE:
        lines.append(
            f"remote memory takes {share:.0%} of an IPU's cycles; "
            + _without_remote(plan, figures, target)
        )
    fed = max((stage.infeed_bytes for _, stage in figures_of(plan, figures).values()), default=0)
    if fed:
        lines.append(
            f"a micro-batch of {fed} bytes fits {io_tiles_for(fed, target)} I/O tiles (the guide's "
            f"formula, which squares the size, says {guide_io_tiles(fed, target):.0f}); the plan "
            f"has {plan.io_tiles}"
        )
    return lines


def _exchange_code(plan: Plan) -> list[str]:
    """Code for replicas, which this account leaves out."""
    if plan.replicas == 1:
        return []
    grown = ", ".join(
        f"{name} {four / one - 1:+.0%}" for name, (one, four) in EXCHANGE_CODE.items()
    )
    return [
        "exchange code is not in this account; it grows with the replicas, of BERT-Large from 1 to "
        f"4: {grown} (DOCUMENTED: the maker's guide on performance)"
    ]


def _balance(plan: Plan, figures: Sequence[StageFigures]) -> list[str]:
    """The IPU whose programs take longest bounds the pipeline."""
    work: dict[int, int] = {}
    for entry, stage in figures_of(plan, figures).values():
        work[entry.ipu] = work.get(entry.ipu, 0) + stage.forward_cycles + stage.backward_cycles
    mean = sum(work.values()) / len(work)
    ipu = max(work, key=lambda i: work[i])
    if not mean or work[ipu] <= (1 + _NOTABLE) * mean:
        return []
    return [f"IPU {ipu} computes {work[ipu] / mean:.2f} times the mean; move layers away from it"]


def _without_remote(plan: Plan, figures: Sequence[StageFigures], target: Target) -> str:
    """Whether the offloaded tensors fit the chip."""
    size = _most(replace(plan, offload=(), shard_state=False), figures).bytes
    if size <= capacity(plan, target):
        return f"offload=() needs {size} bytes and fits"
    return f"offload=() needs {size} bytes and does not fit"
