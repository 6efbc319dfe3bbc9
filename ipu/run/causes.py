"""What hurt a run: causes, each once, the one that explains the most harm first.

A cause is read off the births of a report (`ipu.run.births`), its losses, gradients and updates. A
loss that is not finite is traced back to the first excursion; where every loss is finite the rules
below are asked in this order: a loss that grows before any number has left its range, numbers that
saturate and are computed on with, gradients that vanish, updates that change nothing, sums that
lose their terms, whole numbers that are rounded. Terms are no cause where the shadow shows that
the sum is wrong by far more: what its operands bring is told. Bounds are shares from which on the
harm of the programs in tests/ipu/frontends/torch/hospital could be told from rounding that does
none.

Evidence    ASSUMED: the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ipu.learn.policy import FP32
from ipu.run.births import (
    ABSORBED,
    CONSTANT,
    DATA_BEYOND,
    DATA_DIGITS,
    DATA_ZERO,
    DIVISION,
    INFINITY,
    INTEGERS,
    NAN,
    ONE,
    SATURATED,
    ZERO,
)
from ipu.run.harm import HARM, harm_of
from ipu.run.motions import (
    STILL,
    WAY_LOST,
    arrival,
    astray,
    factors_of_one,
    is_parameter,
    least_arrival,
    way_lost,
)
from ipu.run.sentences import capital, where_told
from ipu.run.shadow import OUTWEIGHS, WRONG
from ipu.run.swallowed import lost_updates

__all__ = [
    "BESIDE_TRAINING", "Cause", "causes_forward", "causes_of_updates", "find_causes", "harmless",
    "harmless_losses", "is_beside_training", "is_of_copies", "is_pass", "name_of", "of_same_line",
]

Report = Mapping[str, Any]
Row = Mapping[str, Any]

#: A loss so many times its first value, while every number is in its range, diverges by itself.
_GROWTH = 20.0
#: An update so many times as large as the weights is no rounding's.
_JUMP = 8.0
#: Share of the gradients' digits that are lost to subnormal numbers and zero.
_DIGITS = 0.05
#: Share of the terms of a sum that change nothing, and how many there are at least; the share of
#: those of a sum that goes on, where the program is harmed.
_ABSORBED, _TERMS, _AGAIN = 0.5, 8, 0.2
#: Share of its way in binary64 that each parameter moves at least where lost updates do no harm.
_FOLLOWS = 0.9
#: Within this factor of it lost digits of gradients do no harm.
_FAR = 1.1
#: Times its way that a parameter moves at least of an optimiser whose divisors are too small, and
#: the share of the optimiser's results that are flushed to zero.
_OVERSHOT, _FLUSHED = 2.0, 0.1
#: Times binary32's update of the same step of such an optimiser's.
_TIMES = 4.0
#: Ends of names of optimisers that divide by nothing.
_DIVIDES_BY_NOTHING = ("sgd", "momentum", "descent", "lion", "rprop")
#: Times that an operation magnifies the error of its operands, at least, where it is told as the
#: place in which precision is lost.
_MAGNIFIED = 16.0
#: Error that is born in one operation, at least, where its operands have lost their digits.
_BORN = 0.2
#: Sums whose roundings add up: calls and mean error at least, how many times as large it is as
#: what one of them rounds away, and the most that they magnify errors of others.
_SUMS, _CALLS, _OF_SUM, _ADDED_UP, _ADDS = ("add", "sub", "assignadd"), 32, 0.02, 16.0, 1.25
#: Distance of a first loss from binary32's that explains an update which is many times as large.
_MOSTLY = 0.5
#: Kinds of causes that show in no loss before the first update.
_FOLLOWERS = frozenset(("updates", "gradients vanish"))
#: Births that follow from each other, at most.
_PATH = 8
#: Directions of a pass forward.
_FORWARD = ("forward", "evaluation", "recompute", "other")
#: Those of which no gradient is computed.
BESIDE_TRAINING = ("evaluation", "other")
_EXCURSIONS = (NAN, INFINITY, SATURATED, DIVISION, DATA_BEYOND)
_OF_DATA = (DATA_BEYOND, DATA_ZERO, DATA_DIGITS)
#: Functions that no backward pass applies to a gradient, in which it is linear: their operands are
#: values of the pass forward, which no loss scale changes.
_NONLINEAR = frozenset(("exp", "expm1", "inv", "log", "log1p", "pow", "reciprocal", "rsqrt", "sqrt",
                        "square"))


@dataclass(frozen=True)
class Cause:
    """One cause.

    kind        "constant", "division", "invalid", "overflow", "gradients overflow", "scale",
                "diverges", "gradients vanish", "states", "updates", "sums", "integers", "drift",
                "data", "cancellation", "underflow", "outside".
    sentence    what happened, with the symptom.
    row         of the birth that it begins with; {} where the cause is no single operation.
    harm        1 for numbers that left their range; else the share of digits, updates or terms.
    """

    kind: str
    sentence: str
    row: Row
    harm: float = 1.0

    @property
    def layer(self) -> str:
        """Where it begins; of data, what reads them."""
        return str(self.row.get("reader") or self.row.get("layer", ""))


def find_causes(report: Report) -> list[Cause]:
    """The causes of a report, the first explains the most harm."""
    births = _births(report)
    causes: list[Cause] = []
    symptom = _symptom(report, births)
    overshot = list(_overshot(report, births, symptom))
    causes.extend(overshot or symptom)
    grown = _diverges(report, births)
    if grown is not None:
        return [grown]
    rules: tuple[Callable[[Report, Sequence[Row]], Iterator[Cause]], ...] = (
        _saturated, _vanished, _small_divisors, _swallowed, _constants, _absorbed, _integers,
    )
    if symptom:  # what was told by its symptom is no second cause
        rules = (_vanished, _swallowed, _constants)
    others = [cause for rule in rules for cause in rule(report, births)]
    causes.extend(sorted(others, key=lambda cause: -cause.harm))
    if all(_is_of_sums(cause) for cause in causes):  # what else broke moves a tensor too
        causes = sorted([*causes, *_drifts(report)], key=lambda cause: -cause.harm)
    follow = all(cause.kind in _FOLLOWERS for cause in causes) and _parts_at_once(report)
    if (not causes or follow) and _harm(report) > HARM:
        causes = [*(cause for rule in _OF_HARM for cause in rule(report, births)), *causes]
    first: dict[str, Cause] = {}
    for cause in causes:
        first.setdefault(cause.kind, cause)
    return list(first.values())


def causes_forward(report: Report, layers: Collection[str]) -> list[Cause]:
    """What the passes forward of these layers tell, as if nothing else had been seen."""
    shadow = report.get("shadow", {})
    operations = [row for row in shadow.get("operations", ()) if row["layer"] in layers]
    births = [row for row in _births(report) if row["layer"] in layers]
    alone = {**report, "shadow": {**shadow, "operations": operations}}
    return [cause for rule in _OF_HARM for cause in rule(alone, births)]


def causes_of_updates(report: Report, layers: Collection[str]) -> list[Cause]:
    """What the updates of these layers' parameters tell, as if nothing else had been seen."""
    rows = report.get("swallowed", {})
    alone = {**report, "swallowed": {name: rows[name] for name in layers if name in rows}}
    return list(_swallowed(alone, ()))


def _is_of_sums(cause: Cause) -> bool:
    """Whether a cause is of terms that parameters or averages beside a training lose."""
    return cause.kind == "updates" or (
        cause.kind == "sums" and cause.row["direction"] == "optimizer")


def harmless(report: Report) -> list[Row]:
    """Births that died in operations whose results they did not change."""
    return [row for row in report.get("births", ()) if row["harmless"]]


def harmless_losses(report: Report) -> Iterator[str]:
    """Digits that the run loses without harm, in words: no cause says them, and they need nothing.

    As updates that leave their parameter as it was, where the losses are binary32's and the
    parameters go nearly all of their way.
    """
    if not _trains_well(report):
        return
    clauses = []
    lost, scales = lost_updates(report), report.get("loss_scale") or {}
    if lost is not None:
        clauses.append(lost.clause)
    if scales and scales["best"] is not None and scales["lost"][0] - scales["lost"][1] > _DIGITS:
        clauses.append(f"gradients lose {scales['lost'][0]:.0%} of their digits to subnormal "
                       "numbers and zero")
    far = 1 - way_lost(report)
    effect = "" if math.isnan(far) else f"; parameters go {far:.0%} of their way in binary64"
    yield from (f"{clause}{effect}" for clause in clauses)


def is_of_gradients(row: Row) -> bool:
    """Whether the results of a birth in a backward pass grow with the loss scale."""
    name = str(row["operation"]).removeprefix("aten.").lstrip("_").lower()
    return row["direction"] == "backward" and name not in _NONLINEAR


def is_pass(direction: str) -> bool:
    """Whether operations of this direction belong to a pass forward."""
    return direction in _FORWARD


def is_beside_training(cause: Cause) -> bool:
    """Whether no backward pass and no optimiser reads what goes wrong, as of a metric."""
    row = cause.row
    if is_of_copies(cause):
        return True
    if row.get("direction") in BESIDE_TRAINING:
        return True
    return row.get("kind") in (NAN, INFINITY, SATURATED) and not row["trained_with"]


def is_of_copies(cause: Cause) -> bool:
    """Whether it is in tensors that no optimiser updates, as averages of the weights are."""
    return bool(cause.row.get("is_of_copies"))


def _births(report: Report) -> list[Row]:
    """Those of the report; of a front end that tells no operations, its first flags."""
    births = list(report.get("births", ()))
    if births:
        return births
    kinds = {"OVERFLOW": SATURATED, "DIVBYZERO": DIVISION, "INVALID": NAN}
    return [
        {"number": i, "kind": kinds[row["flag"]], "step": row["step"], "layer": row["layer"],
         "direction": row["direction"], "operation": row["operation"], "format": "",
         "line": row.get("line", ""), "detail": "", "count": row["times"], "results": 0,
         "causes": [], "deaths": {}, "harmless": False, "weights": "", "repeated": 0,
         "trained_with": True}
        for i, row in enumerate(report.get("first", ()))
    ]


# A loss that is not finite ------------------------------------------------------------------------


def _symptom(report: Report, births: Sequence[Row]) -> list[Cause]:
    """The way back from the first loss that is not finite, with what stands beside it."""
    losses = report.get("losses", ())
    bad = next((i for i, loss in enumerate(losses) if not math.isfinite(loss)), None)
    if bad is None:
        return []
    bad = report.get("symptom", {}).get("step", bad)
    named = report.get("symptom", {}).get("births", {})
    ends = [births[named[kind]] for kind in (NAN, INFINITY, SATURATED) if kind in named]
    if not ends:
        ends = [row for row in births if row["kind"] in _EXCURSIONS]
        ends.sort(key=lambda row: (row["step"], row["number"]))
    value = "NaN" if math.isnan(_at(losses, bad)) else "infinite"
    begin = f"The loss is {value} from step {bad} on"
    if not ends:
        return [Cause("outside", f"{begin}, and no operation made it: the data or the first "
                      "weights hold a number that is not finite, or beyond its format's largest",
                      {})]
    return _chain(begin, ends[0], report, births)


def _at(losses: Sequence[float], step: int) -> float:
    bad = [loss for loss in losses if not math.isfinite(loss)]
    return bad[0] if bad else losses[min(step, len(losses) - 1)]


def _chain(begin: str, end: Row, report: Report, births: Sequence[Row]) -> list[Cause]:
    """The sentence from a birth back to the first excursion, and forward again."""
    path = _path_to(end, births)
    division = next((row for row in births if row["kind"] == DIVISION and (
        _place(row) == _place(path[-1]) or (len(path) == 1 and row is end))), None)
    if division is not None and division not in path:
        path.insert(len(path) - 1, division)
    if division is not None and not any(row["kind"] == CONSTANT for row in path):
        constant = _zero_constant(division, report)
        path = path if constant is None else [constant, *path]
    is_told = division is not None and path[-2:-1] == [division]  # the NaN is its quotient
    rows = [row for row in path[:-1] if row["kind"] != NAN or row["detail"]]
    if path[-1]["kind"] != NAN or not is_told:
        rows.append(path[-1])
    text, weights = _clauses(rows), path[-1]["weights"]
    if weights:
        text += f", and the weights of {_module(weights)} become {_VALUES[path[-1]['kind']]}"
    return [_cause_of(path, f"{begin}: {text}"), *_constants_beside(path)]


def _path_to(end: Row, births: Sequence[Row]) -> list[Row]:
    """A birth, and before it the ones that it follows from; the first excursion begins them.

    An optimiser's constant is there to keep flushed squares from zero: it comes before them.
    """
    path = [end]
    while path[0]["causes"] and len(path) < _PATH:
        if path[0]["kind"] == CONSTANT and path[0]["direction"] == "optimizer":
            break
        path.insert(0, births[path[0]["causes"][0]])
    return path


def _clauses(path: Sequence[Row]) -> str:
    """What happened in births that follow from each other; constants stand beside the others."""
    text = ""
    for row in path:
        joint = ", and " if row["kind"] == CONSTANT else ", so "
        text += (joint if text else "") + _clause(row)
        if row["kind"] == CONSTANT and row["detail"] == ONE and row["line"]:
            text += f" ({row['line']})"
    return text


def _cause_of(path: Sequence[Row], sentence: str) -> Cause:
    """The cause that begins with the first of these births."""
    first = path[0]
    kind = {
        CONSTANT: "constant", DIVISION: "division", NAN: "invalid", ZERO: "division",
        **dict.fromkeys(_OF_DATA, "data"),
    }.get(first["kind"], "overflow")
    if kind == "overflow" and is_of_gradients(first):
        kind = "gradients overflow"
    return Cause(kind, sentence, first)


def _constants_beside(path: Sequence[Row]) -> Iterator[Cause]:
    """The constants that do not keep flushed numbers from zero."""
    yield from (Cause("constant", capital(f"{_clause(row)} ({where_told(row)})"), row)
                for row in path[1:] if row["kind"] == CONSTANT)


_VALUES = {NAN: "NaN", INFINITY: "infinite", SATURATED: "the largest number", DIVISION: "infinite"}


def _place(row: Row) -> tuple[Any, ...]:
    return row["layer"], row["direction"], row["operation"], row["step"]


def _zero_constant(division: Row, report: Report) -> Row | None:
    """The constant that is zero where it divides, of front ends that tell no operands."""
    zeros = [c for c in report.get("constants", ()) if c["becomes"] == "zero" and c["value"] > 0]
    row = next((c for c in zeros if c["layer"] == division["layer"] or (
        c["direction"] == division["direction"] == "optimizer")), None)
    return None if row is None else {
        "kind": CONSTANT, "operation": repr(float(row["value"])), "format": row["format"],
        "detail": "zero", "layer": row["layer"], "direction": row["direction"], "step": 0,
        "line": row.get("line", ""), "count": row["times"], "results": row["times"], "causes": [],
        "weights": "",
    }


def _clause(row: Row) -> str:
    """What happened in one birth."""
    if row["kind"] == CONSTANT:
        value, bounded = row["operation"], row.get("bounds")
        of_what = f"bound {value} of {name_of({**row, 'operation': bounded})}" if bounded else (
            f"constant {value}")
        rounded = math.copysign(1, float(value))
        what = {"zero": "is zero", ONE: f"is {rounded:g}", "overflow":
                "is beyond the largest number"}
        return f"the {of_what} {what.get(row['detail'], 'changes')} in {row['format']}"
    fmt = row["format"] or "its format"
    if row["kind"] in _OF_DATA:
        return _clause_of_data(row, fmt)
    verb = {
        NAN: f"is invalid{' ' + row['detail'] if row['detail'] else ''}",
        INFINITY: f"overflows {fmt}", SATURATED: f"overflows {fmt}",
        DIVISION: f"divides by zero{_of_difference(row, fmt)}",
        ZERO: f"underflows to zero in {fmt}",
    }[row["kind"]]
    return f"{name_of(row)} {verb} ({where_told(row)})"


def _of_difference(row: Row, fmt: str) -> str:
    """What is divided by, where it is a difference."""
    return f", {row['detail']} in {fmt}" if row["detail"] else ""


def _clause_of_data(row: Row, fmt: str) -> str:
    """What the format does to data of the program."""
    what = {
        DATA_BEYOND: f"leave the range of {fmt}: {_share(row, 'numbers')}, {row['detail']}, are "
                     "beyond its largest one",
        DATA_ZERO: f"underflow in {fmt}: {_share(row, 'numbers')}, {row['detail']}, become zero",
        DATA_DIGITS: f"lose their digits in {fmt}: {row['detail']} (mean and deviation) are "
                     "rounded by a good part of what they differ by",
    }[row["kind"]]
    reader = row.get("reader") or row["layer"]
    return f"data on entry{f' of {reader}' if reader else ''} {what} ({where_told(row)})"


def name_of(row: Row) -> str:
    """The operation of a birth, and its layer."""
    whole = str(row["operation"]).rstrip("_")  # in place or not
    operation, layer = whole.removeprefix("aten.").lstrip("_"), row["layer"]
    if layer in ("", "optimizer", row["operation"], whole):
        return f"the {operation}"
    return f"the {operation} of {_module(str(layer))}"


def _module(layer: str) -> str:
    """The name of a layer; of one without, as in a sequence, that it is one."""
    return f"module {layer}" if layer.isdigit() else layer


def _place_of(row: Row) -> str:
    return ", ".join(filter(None, (row["direction"], row["line"])))


def _share(row: Row, of: str = "results") -> str:
    return f"{row['count']:,} of {row['results']:,} {of}" if row["results"] else (
        f"{row['count']:,} {of}"
    )


# Losses that are finite ---------------------------------------------------------------------------


def _diverges(report: Report, births: Sequence[Row]) -> Cause | None:
    """A loss that has grown before any number left its range, where binary32 may do so too.

    Of a program that trains in binary32, as was tried, a format is the cause.
    """
    losses = report.get("losses", ())
    if report.get("binary32") or not losses or not math.isfinite(losses[0]):
        return None
    bound = _GROWTH * abs(losses[0])
    index = next((i for i, x in enumerate(losses) if not abs(x) <= bound), None)
    if index is None:
        return None
    step, grown = index + report.get("first_step", 0), f"{losses[0]:.3g} to {losses[index]:.3g}"
    first = min((row["step"] for row in births if row["kind"] in (*_EXCURSIONS, CONSTANT) and not (
        row["harmless"])), default=math.inf)
    jumps = {int(k): jump for k, jump in report.get("jumps", {}).items() if jump > _JUMP}
    jump = min((k for k in jumps if k < min(first, step)), default=None)
    if jump is not None:
        what = (f"the update of step {jump} is {jumps[jump]:.0f} times as large as the weights, "
                f"and the loss goes from {grown} in step {step}")
    elif first > step and not any(loss < 0 for loss in losses):  # which is no distance
        what = f"the loss grew from {grown} in step {step}"
    else:
        return None
    tail = ("format, in binary32 itself" if report.get("policy") == str(FP32) else
            "format, so binary32 is expected to diverge too")
    return Cause("diverges", f"The training diverges: {what}, before any number left the range of "
                 f"its {tail}", {})


def _saturated(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Numbers beyond the largest one that the program computes on with."""
    is_training = bool(report.get("losses"))
    rows = [r for r in births if (r["kind"] in _EXCURSIONS or r.get("alone", 0.0) > HARM)
            and not r["harmless"] and not (is_training and _ends_forward(r, births))]
    if not rows:
        return
    first = _worst_of_line(min(rows, key=lambda row: (row["step"], row["number"])),
                           [row for row in births if not row["harmless"]])
    clause = _clause(first)
    if first["kind"] == CONSTANT:
        yield Cause("constant", capital(f"{clause} ({where_told(first)})"), first)
        return
    if first["kind"] == DATA_BEYOND:
        yield Cause("data", capital(clause), first)
        return
    n = f"{_share(first)}"
    scales = report.get("loss_scale") or {}
    is_scaled = first["direction"] != "backward" or is_of_gradients(first)
    if is_scaled and scales and scales["best"] is not None and (
        scales["highest_safe"] < scales["present"]
    ):
        yield Cause(
            "scale", capital(f"{clause}: {n}, as the present scale of {scales['present']:g} takes "
                              f"{scales['limited_by']} beyond the largest number of its format"),
            {**first, "layer": scales["limited_by"]},
        )
        return
    if first["kind"] in (DIVISION, NAN):
        path = _path_to(first, births)
        if first["kind"] == DIVISION and not any(row["kind"] == CONSTANT for row in path):
            path = [*filter(None, [_zero_constant(first, report)]), *path]
        yield _cause_of(path, capital(f"{_clauses(path)}: {n}"))
        yield from _constants_beside(path)
    elif first["kind"] == ZERO:
        begins = "Gradients underflow: " if first["direction"] == "backward" else ""
        kind = "gradients vanish" if begins else "underflow"
        yield Cause(kind, capital(f"{begins}{clause}: {n}"), first)
    elif not is_scaled:
        yield Cause("overflow", capital(
            f"{clause}: {n}, of values that no loss scale changes"), first)
    elif first["direction"] == "backward":
        yield Cause("gradients overflow", f"Gradients overflow, the loss scale is too high: "
                    f"{clause}, {n}", first)
    else:
        yield Cause("overflow", capital(f"{clause}: {n}"), first)


def _worst_of_line(first: Row, rows: Sequence[Row]) -> Row:
    """Of what leaves the range as the first birth does, in its step and line, what does most harm.

    A term of a sum may leave it in few elements and the sum in all. The harm is that of a run in
    which only this operation is low, where there was one; the elements decide between alike ones.
    """
    alike = of_same_line(first, rows)
    worst = max(float(row.get("alone", 0.0)) for row in alike)
    return max((row for row in alike if not row.get("alone", worst) < worst - HARM), key=lambda row:
               math.inf if row["kind"] == CONSTANT else row["count"])


def of_same_line(first: Row, rows: Iterable[Row]) -> list[Row]:
    """The first of births, and those in its step, layer and line that leave the range as it does.

    Outside of modules an operation is a layer. A constant beyond the range takes all elements of
    its operation with it.
    """
    def key(row: Row) -> tuple[object, ...]:
        is_beyond = row["kind"] == CONSTANT and row["detail"] == "overflow"
        kind = SATURATED if is_beyond or row["kind"] == INFINITY else row["kind"]
        outside = row["kind"] == CONSTANT or row["layer"] == row["operation"]
        layer = "" if outside else row["layer"]
        return kind, row["step"], row["direction"], row["line"], layer

    others = [row for row in rows if row["number"] != first["number"] and key(row) == key(first)]
    return [first, *others] if first["line"] else [first]


def _ends_forward(row: Row, births: Sequence[Row]) -> bool:
    """Whether a NaN of a pass forward ended there: in a selection, or in whole numbers.

    As log(0) of a distance does that a table holds for small ones. No loss and no gradient has it.
    """
    if row["direction"] != "forward" or row["kind"] not in (NAN, DIVISION):
        return False
    values = [row] if row["kind"] == NAN else [
        r for r in births if row["number"] in r["causes"] and r["kind"] in (NAN, INFINITY)]
    return bool(values) and not any(r["trained_with"] or r["weights"] for r in values)


def _vanished(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Gradients that underflow."""
    flushed = [r for r in births if r["kind"] == ZERO and r["direction"] == "backward"]
    first = min(flushed, key=lambda row: (row["step"], row["number"]), default={})
    begins = f": it begins where {_clause(first)}" if first else ""
    gradients = report.get("exponents", {}).get("gradients", ())
    numbers = sum(sum(h["counts"].values()) for h in gradients if h["format"] != "binary32")
    zeros = sum(h["zeros"] for h in gradients if h["format"] != "binary32")
    if flushed and zeros and not numbers:
        yield Cause("gradients vanish", f"Every gradient is zero{begins}", first)
        return
    scales = report.get("loss_scale") or {}
    if not scales or scales["best"] is None:
        return
    now, then = scales["lost"]
    if now - then > _DIGITS and not (1 / _FAR < arrival(report) < _FAR or _trains_well(report)):
        yield Cause("gradients vanish", f"Gradients underflow: {now:.0%} of their digits are lost "
                    f"to subnormal numbers and zero{begins}", first, now)


def _swallowed(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Updates that nearest rounding ends; stochastically rounded ones arrive in the mean."""
    lost = lost_updates(report)
    if lost is None or least_arrival(report) > _FOLLOWS or _trains_well(report):
        return
    yield Cause("updates", lost.sentence, lost.worst.row, lost.share)


def _small_divisors(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Squares of gradients that underflow in an optimiser, which divides by their roots."""
    times = arrival(report)
    rows = [] if _parts_at_once(report, _MOSTLY) else _flushed_divisors(births)
    if rows and times > _OVERSHOT:
        worst = max(rows, key=lambda row: row["count"])
        yield Cause("states", f"Divisors of the optimiser are too small: {_clause(worst)}, "
                    f"{_share(worst)}, and parameters move {times:.1f} times as far as in "
                    "binary64", worst, 1 - 1 / times)


def _flushed_divisors(births: Sequence[Row]) -> list[Row]:
    """Results of optimisers that divide, a good part of which are flushed to zero."""
    return [
        row for row in births if row["kind"] == ZERO and row["direction"] == "optimizer"
        and row["count"] > _FLUSHED * row["results"]
        and not str(row["operation"]).lower().endswith(_DIVIDES_BY_NOTHING)
    ]


def _overshot(
    report: Report, births: Sequence[Row], symptom: Sequence[Cause]
) -> Iterator[Cause]:
    """Divisors of an optimiser that are too small, before any number leaves its range.

    Its update is then many times binary32's of the same step; what leaves the range later follows.
    """
    if _parts_at_once(report, _MOSTLY):  # a wrong loss has wrong gradients
        return
    jumps = {int(step): jump for step, jump in report.get("jumps", {}).items()}
    theirs = {int(step): jump for step, jump in report.get("binary32", {}).get("jumps", {}).items()}
    flushed = _flushed_divisors(births)
    beyond = [row for row in births if row["kind"] in _EXCURSIONS and not row["harmless"]]
    first = min((row["step"] for row in beyond), default=math.inf)
    step = next((step for step, jump in sorted(jumps.items()) if step < first
                 and jump > _TIMES * theirs.get(step, math.inf)), None)
    if step is None or not flushed:
        return
    worst = max(flushed, key=lambda row: row["count"])
    sentence = (
        f"Divisors of the optimiser are too small: {_clause(worst)}, {_share(worst)}, and the "
        f"update of step {step} is {jumps[step] / theirs[step]:.0f} times as large as binary32's")
    follows = [cause.sentence for cause in symptom] or [
        _clause(min(beyond, key=lambda row: (row["step"], row["number"])))] if beyond else []
    if follows:
        sentence += f". What follows: {follows[0]}"
    yield Cause("states", sentence, worst)


def _trains_well(report: Report) -> bool:
    """Whether losses and the way of the parameters show that lost digits do no harm.

    Losses of a few steps say little where the batches differ by more than the training goes; the
    way is then all that shows it. Without losses of another run to compare with nothing is known.
    """
    rows = report.get("shadow", {}).get("losses", ())
    if "harm" not in report and not rows:
        return False
    return _harm(report) <= HARM and not way_lost(report) > WAY_LOST


def _constants(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Factors of averages that decay nothing, where the terms of the average are absorbed too.

    The same factor in a decay of weights costs little, and is no cause.
    """
    averages = _averages(report, births)
    for row in report.get("constants", ()) if averages else ():
        if row["becomes"] == "one" and row["direction"] == "optimizer":
            yield Cause(
                "constant", f"The factor {row['value']:g} of an average is 1 in {row['format']}, "
                f"and {averages[0]['count']:,} of {averages[0]['results']:,} terms left it "
                f"unchanged ({where_told(averages[0])})",
                {"layer": row["layer"], "detail": ONE, "operation": f"{row['value']:g}",
                 "format": row["format"], "line": row.get("line", "")},
            )
            return


def _unchanged(report: Report, births: Sequence[Row]) -> list[Row]:
    """Sums most of whose terms changed nothing, again and again."""
    return [
        r for r in births if r["kind"] == ABSORBED and not r["harmless"]
        and r["repeated"] >= _TERMS and r["count"] > _ABSORBED * r["results"]
        and not _is_outweighed(r, report)
    ]


def _is_outweighed(row: Row, report: Report) -> bool:
    """Whether the results of a birth are wrong by far more than what is lost there.

    Its operands bring it: a small number that keeps a divisor from zero may vanish beside one that
    is wrong already. Those of a sum that goes on bring what it has lost itself. Errors are those
    before any update, by which a result's error comes back to its operands.
    """
    if row.get("running") or not row["line"]:
        return False
    adds_up = row["repeated"] >= _TERMS or row["direction"] == "optimizer"
    lost = 0.0 if adds_up else OUTWEIGHS * row.get("lost", 0.0)
    place = row["layer"], row["direction"], row["operation"]
    return any(
        row["line"] in of_shadow.get("brought", ()) or 0 < lost < of_shadow.get("least", 0.0)
        for of_shadow in report.get("shadow", {}).get("operations", ())
        if (of_shadow["layer"], of_shadow["direction"], of_shadow["operation"]) == place)


def _absorbed(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Sums whose terms are too small to change them."""
    rows = [row for row in _harmful(report, births) if row["direction"] != "optimizer"]
    if not any(_constants(report, births)):  # of an average, whose cause is its factor
        rows += [_beside_optimiser(row, report) for row in _averages(report, births)]
    yield from _of_terms(rows)


def _averages(report: Report, births: Sequence[Row]) -> list[Row]:
    """Sums of optimisers, or beside a training, whose terms change nothing."""
    return [row for row in _harmful(report, births) if row["direction"] == "optimizer"]


def _beside_optimiser(row: Row, report: Report) -> Row:
    """A sum of an update; one that writes no parameter and no state of an optimiser is told so."""
    moved = [motion for motion in report.get("shadow", {}).get("motions", ())
             if motion["line"] == row["line"]]
    if not moved or any(is_parameter(motion) or motion["is_state"] for motion in moved):
        return row
    owners = {motion["owner"]: None for motion in astray(report)
              if motion["line"] == row["line"] and motion.get("owner")}
    return {**row, "is_of_copies": True, "phase": "beside the optimiser",
            "owners": ", ".join(owners)}


def _harmful(report: Report, births: Sequence[Row]) -> list[Row]:
    """Sums whose terms change nothing; without those that go their way.

    Where the training is well and what the program writes was followed, a sum that is no metric's
    does harm on the lines of the tensors that went astray: a small number that keeps a divisor from
    zero may vanish.
    """
    rows = _unchanged(report, births)
    if not report.get("shadow", {}).get("motions") or not _trains_well(report):
        return rows
    lines = {row["line"] for row in astray(report)}
    return [row for row in rows if row["direction"] in BESIDE_TRAINING or row["line"] in lines]


def _of_terms(rows: Sequence[Row]) -> Iterator[Cause]:
    """The sums of some births that lose the most terms."""
    if rows:
        worst = max(rows, key=lambda row: row["count"])
        yield Cause("sums", f"Terms are absorbed: {worst['count']:,} of {worst['results']:,} "
                    f"terms of {name_of(worst)} left the sum unchanged in {worst['format']} "
                    f"({where_told(worst)}){_owned(worst)}", worst,
                    worst["count"] / worst["results"])


def _owned(row: Row) -> str:
    """Whose parameters a sum writes, where that is known."""
    return f", in parameters of {row['owners']}" if row.get("owners") else ""


def _drifts(report: Report) -> Iterator[Cause]:
    """A tensor that stands still while its shadow moves, by steps that binary32 holds.

    Parameters are told by their updates, and what the states of their optimiser do shows there.
    """
    still = [row for row in astray(report) if row["arrived"] < STILL]
    if not still:
        return
    worst = still[0]
    shape = " × ".join(map(str, worst["shape"])) or "one number"
    what = f"{worst['name']}, which" if worst["name"] else f"a tensor of {shape} that"
    writer = f"{worst['operation']} writes ({worst['line']})"
    factor = factors_of_one(report).get(worst["line"])
    begin = "Sums" if factor is None else (
        f"The factor {factor['value']:g} of an average is 1 in {factor['format']}: sums")
    if worst["name"]:
        writer += ","
    follows = "" if worst["shape"] else _follows(report)
    owners = f", in parameters of {worst['owner']}" if worst.get("owner") else ""
    layer = worst.get("layer", worst["name"].rpartition(".")[0])
    yield Cause("drift", f"{begin} are left nearly unchanged: over {worst['steps']} steps "
                f"{what} {writer} moves by {max(worst['arrived'], 0.0):.0%} of its way in "
                f"binary64{follows}{owners}",
                {**worst, "layer": layer, "direction": "forward",
                 "is_of_copies": worst.get("is_copy", False)},
                1 - max(worst["arrived"], 0.0))


def _follows(report: Report) -> str:
    """What magnifies the error of a counter, as a remainder of it does; "" where nothing does."""
    rows = [row for row in report.get("shadow", {}).get("operations", ())
            if row["error"] > _BORN and (row["amplification"] or 0.0) > _MAGNIFIED]
    if not rows:
        return ""
    worst = max(rows, key=lambda row: float(row["amplification"]))
    return f"; the {worst['operation'].removeprefix('aten.')} ({worst['line']}) is wrong by " \
           f"{worst['error']:.0%}"


def _integers(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Positions and counts that the format has not, where results are wrong by them."""
    row = next((r for r in births if r["kind"] == INTEGERS), None)
    if row is not None and (_harm(report) > HARM or _is_wrong(report)):
        yield Cause("integers", f"Whole numbers up to {row['detail']} are rounded: {row['format']} "
                    f"does not hold {row['count']:,} of them, positions or counts "
                    f"({row['layer'] or 'outside of modules'}, {where_told(row)})", row,
                    row["count"] / row["results"])


# Losses that part, and nothing else to see -------------------------------------------------------


def _lost_data(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Data whose digits the format has not."""
    row = next((r for r in births if r["kind"] in (DATA_ZERO, DATA_DIGITS)), None)
    if row is not None:
        yield Cause("data", capital(_clause(row)), row, row["count"] / row["results"])


def _lost_terms(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Terms that are absorbed, as a small step beside a large number.

    Where they are added to the last sum again, what is lost adds up: fewer of them do harm.
    """
    def bound(row: Row) -> float:
        goes_on = row["repeated"] > max(_TERMS, _ABSORBED * row["count"])
        return _AGAIN if goes_on else _ABSORBED

    rows = [r for r in births if r["kind"] == ABSORBED and not r["harmless"]
            and is_pass(r["direction"]) and r["count"] > bound(r) * r["results"]
            and not _is_outweighed(r, report)]
    yield from _of_terms(rows)


def _cancelled(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """The operation going forward that magnifies errors most.

    No number leaves its range in a difference of nearly equal ones, and nearly all digits go.
    """
    forward = [row for row in report.get("shadow", {}).get("operations", ())
               if row["direction"] in _FORWARD]
    rows = [row for row in forward if row["error"] > WRONG]
    magnified = _magnified(rows)
    rounded = [row for row in rows if row["born"] > _BORN]  # operands lose them on the way in
    # Means over steps hide it, once the parameters have parted. One call says little by itself, as
    # of a mask: it is told of a harm that a run in binary32 has not.
    if not (magnified or rounded) and "harm" in report:
        magnified = _magnified([{**row, **row["peak"]} for row in forward if row.get("peak")])
    if magnified:  # what reads a wrong difference may magnify it once more
        begins = [row for row in magnified if row["error"] < WRONG * float(row["amplification"])]
        worst = max(begins or magnified, key=lambda row: float(row["amplification"]))
        # Calls of several lines are one row; it is the worst one's that is told.
        worst = {**worst, "line": worst.get("peak", {}).get("line") or worst["line"]}
        times = float(worst["amplification"])
        before = 100 * worst["error"] / times
        what = (f"their error of {before:.2g}% is {worst['error']:.0%} of its results, "
                f"{times:.0f} times as much")
    elif rounded:
        worst = max(rounded, key=lambda row: float(row["born"]))
        what = f"rounding them costs {worst['born']:.0%} of its results"
    else:
        return
    constant = next((row for row in births if row["kind"] == CONSTANT and not row["harmless"]
                     and row["line"] and row["line"] == worst["line"]), None)
    if constant is not None:  # the digits go with the number that the program writes there
        yield Cause("constant", capital(f"{_clause(constant)} ({where_told(constant)})"), constant)
        return
    yield Cause("cancellation", capital(
        f"{name_of(worst)} loses the digits of its operands ({_place_of(worst)}): {what}, as where "
        "nearly equal numbers are subtracted"), worst, worst["error"])


def _magnified(rows: Iterable[Row]) -> list[Row]:
    """Operations whose operands are much less wrong than their results."""
    return [row for row in rows if (row["amplification"] or 0.0) > _MAGNIFIED]


def _rounded_sums(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """The sum that is rounded most often: no error of it is large, and they add up."""
    rows = [
        row for row in report.get("shadow", {}).get("operations", ())
        if row["direction"] in _FORWARD and str(row["operation"]).lower().removeprefix("aten.")
        .startswith(_SUMS) and row.get("calls", 0) >= _CALLS and row["born"] > 0
        and row["error"] > max(_OF_SUM, _ADDED_UP * row["born"])
        and (row["amplification"] or 0.0) < _ADDS
    ]
    if rows:
        worst = max(rows, key=lambda row: float(row["error"]))
        yield Cause("sums", capital(
            f"rounding adds up in {name_of(worst)} ({_place_of(worst)}): {worst['calls']:,} sums "
            f"are rounded, each by {worst['born']:.2%}, and they are wrong by "
            f"{worst['error']:.1%} in the mean"), worst, worst["error"])


def _underflowed(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """Results of a pass forward most of which are flushed to zero."""
    rows = [r for r in births if r["kind"] == ZERO and is_pass(r["direction"])
            and not r["harmless"] and r["count"] > _ABSORBED * r["results"]
            and not _is_outweighed(_path_to(r, births)[0], report)]
    if rows:
        path = _path_to(rows[0], births)
        yield Cause("underflow", capital(f"{_clauses(path)}: {_share(rows[0])}"), path[0])


def _changed(report: Report, births: Sequence[Row]) -> Iterator[Cause]:
    """A number of the program's pass forward that is another one in its format."""
    row = next((r for r in births if r["kind"] == CONSTANT and is_pass(r["direction"])
                and not r["harmless"]), None)
    if row is not None:
        yield Cause("constant", capital(f"{_clause(row)} ({where_told(row)})"), row)


#: Rules for programs whose losses part, where no other one says why.
_OF_HARM = (_lost_data, _underflowed, _lost_terms, _cancelled, _rounded_sums, _changed)


def _harm(report: Report) -> float:
    """Of the run beside binary32, where that was run; else beside its shadow, or none."""
    if "harm" in report:
        return float(report["harm"])
    rows = report.get("shadow", {}).get("losses", ())
    return harm_of([row["machine"] for row in rows], [row["shadow"] for row in rows])


def _parts_at_once(report: Report, bound: float = HARM) -> bool:
    """Whether the first loss is far from binary32's already: no gradient and no update is in it.

    bound    of its distance, beside what binary32's losses go through.
    """
    theirs, losses = report.get("binary32", {}).get("losses", ()), report.get("losses", ())
    if not (len(theirs) and losses):
        return False
    return harm_of([losses[0], *theirs[1:]], theirs) * len(theirs) > bound


def _is_wrong(report: Report) -> bool:
    """Whether results of passes forward are far from binary64's; so without a shadow."""
    rows = report.get("shadow", {}).get("operations", ())
    return not rows or any(
        row["direction"] in _FORWARD and row["error"] > WRONG for row in rows)
