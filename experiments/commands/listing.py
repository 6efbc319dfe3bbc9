"""fpsim list: what there is to run and to use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from ipu.experiments.commands.options import completing, echo_json, with_json
from ipu.experiments.lab.catalogue import catalogue

if TYPE_CHECKING:
    from fpsim.records.recipes import OperandRule


def experiment_lines() -> Iterator[str]:
    """Name, whether the default report has it, budget, question."""
    experiments = catalogue()
    width = max(map(len, experiments))
    for experiment in experiments.values():
        mark = "*" if experiment.default else " "
        yield f"{mark} {experiment.name:{width}}  {experiment.budget:4.0f} s  {experiment.question}"
    yield ""
    yield "* is in the default report; run one with: fpsim run NAME"


def format_lines() -> Iterator[str]:
    """The catalogue of formats with their ranges."""
    from fpsim.records.formats import CATALOGUE, P3109, ScaleFormat

    head = ("name", "bits", "exp", "p", "max", "min normal", "min")
    yield "{:<12} {:>4} {:>3} {:>2} {:>11} {:>11} {:>11}  specials".format(*head)
    for name, fmt in (CATALOGUE | P3109).items():
        if isinstance(fmt, ScaleFormat):
            yield f"{name:<12} {fmt.bits:>4}  scales of blocks, {fmt.min:.5g} to {fmt.max:.5g}"
            continue
        yield (
            f"{name:<12} {fmt.bits:>4} {fmt.exponent_bits:>3} {fmt.precision:>2} {fmt.max:>11.5g} "
            f"{fmt.smallest_normal:>11.5g} {fmt.smallest_subnormal:>11.5g}  {fmt.specials}"
        )
    yield ""
    yield from block_lines()


def block_lines() -> Iterator[str]:
    """The catalogue of block-scaled formats."""
    from fpsim.records.blocks import BLOCKS

    row = "{:<17} {:<8} {:<8} {:<9} {:<13} {:<6} {:>5}  {}".format
    yield row("block", "element", "scale", "shape", "rule", "tensor", "bits", "source")
    for name, block in BLOCKS.items():
        shape = "x".join("all" if side is None else str(side) for side in block.shape)
        tensor = "f32" if block.tensor_scale else "-"
        yield row(name, block.element.name, block.scale.name, shape, block.scale_rule, tensor,
                  f"{block.bits_per_element:.5g}", block.source)


#: Constants of a unit whose evidence is listed, one letter each.
_JUDGED = ("terms", "window", "cut", "rounding")


def unit_lines() -> Iterator[str]:
    """The catalogue of matrix units: what they align, cut, add and round, and how we know."""
    import ipu.machine  # noqa: F401  (registers the units of the IPU)
    from fpsim.records.units import UNITS

    row = "{:<27} {:<9} {:<8} {:>6} {:>6}  {:<8} {:<15} {:<8} {}".format
    head = ("name", "inputs", "partials", "terms", "window", "cut", "accumulator", "evidence")
    yield row(*head, "instruction")
    for name, unit in sorted(UNITS.items()):
        inputs = ",".join(fmt.name for fmt in unit.inputs)
        calls = "K" if unit.calls is None else unit.calls
        terms = f"{calls}x{unit.terms}" if calls != 1 else unit.terms
        window, cut = ("exact", "none") if unit.window is None else (unit.window, unit.cut)
        sums = f"{unit.accumulator} {unit.rounding}"
        evidence = " ".join(
            str(unit.facts[c].evidence)[0] if c in unit.facts else "-" for c in _JUDGED
        )
        partials = unit.partials.name
        yield row(name, inputs, partials, terms, window, cut, sums, evidence, unit.instruction)
    yield ""
    yield from scaled_unit_lines()
    yield ""
    yield "terms: calls x products of a call in one pass, after which partials are stored"
    yield f"evidence: of {', '.join(_JUDGED)}; Documented, Measured, Inferred, Assumed, - no such"
    yield "source of each one: fpsim.records.units.find_unit(NAME).facts"


def scaled_unit_lines() -> Iterator[str]:
    """The catalogue of units whose operands are blocks."""
    from fpsim.records.scaled_units import ScaledUnit
    from fpsim.records.units import SCALED_UNITS

    row = "{:<27} {:<9} {:>6} {:>6} {:>5} {:>6}  {:<15} {:<8} {}".format
    yield row("of blocks", "scales", "scaled", "terms", "group", "window", "accumulator",
              "evidence", "instruction")
    for name, unit in sorted(SCALED_UNITS.items()):
        assert isinstance(unit, ScaledUnit)
        evidence = " ".join(str(unit.facts[c].evidence)[0] for c in _JUDGED)
        scales = ",".join(fmt.name for fmt in unit.scale_formats)
        how = "" if unit.promotion is None else f", {unit.promotion}"
        yield row(name, scales, unit.scale_block, unit.terms, unit.group, unit.window,
                  f"{unit.accumulator} {unit.rounding}", evidence, unit.instruction + how)


def recipe_lines() -> Iterator[str]:
    """Recipes of training in blocks, and what can follow their names."""
    from fpsim.records.recipes import ADDITIONS, PRODUCTS, RECIPES

    row = "{:<13} {:<32} {:<32} {:<32} {:<20} {}".format
    yield row("recipe", *PRODUCTS, "unit of fprop", "source")
    for name, recipe in RECIPES.items():
        rules = [recipe.rules[product] for product in PRODUCTS.values()]
        products = [f"{_operand(rule.left)} x {_operand(rule.right)}" for rule in rules]
        yield row(name, *products, rules[0].unit, recipe.source)
    yield ""
    yield "what follows a name:"
    for addition, meaning in ADDITIONS.items():
        yield f"  {addition if addition[0] == '-' else '+' + addition:<18} {meaning}"
    yield f"  {'+LAYER=bf16':<18} a policy of layers by a pattern of their names"
    yield f"  {'+last2=bf16':<18} that of the last two blocks, else layers; also first2"


def _operand(rule: OperandRule | None) -> str:
    """What an operand becomes, in a word."""
    if rule is None:
        return "as it is"
    turned = "" if rule.transform is None else f" {rule.transform}"
    return f"{rule.block}{' SR' if rule.rounding.stochastic else ''}{turned}"


def bench_lines() -> Iterator[str]:
    """Topics of benchmarks."""
    from ipu.experiments.bench import TOPICS

    for name, line in TOPICS.items():
        yield f"{name:8} {line}"
    yield ""
    yield "run one with: fpsim bench TOPIC"


def experiment_rows() -> Iterator[dict[str, object]]:
    for e in catalogue().values():
        yield {"name": e.name, "room": e.room.rpartition(".")[2], "question": e.question,
               "budget_seconds": e.budget, "default": e.default}


def format_rows() -> Iterator[dict[str, object]]:
    from fpsim.records.blocks import BLOCKS
    from fpsim.records.formats import CATALOGUE, P3109, ScaleFormat

    for name, fmt in (CATALOGUE | P3109).items():
        if isinstance(fmt, ScaleFormat):
            yield {"name": name, "bits": fmt.bits, "bias": fmt.bias, "scale": True}
            continue
        yield {"name": name, "bits": fmt.bits, "exponent_bits": fmt.exponent_bits,
               "precision": fmt.precision, "max": fmt.max, "min_normal": fmt.smallest_normal,
               "min": fmt.smallest_subnormal, "specials": str(fmt.specials)}
    for name, block in BLOCKS.items():
        yield {"name": name, "block": True, "element": block.element.name,
               "scale": block.scale.name, "shape": list(block.shape),
               "scale_rule": block.scale_rule, "tensor_scale": block.tensor_scale is not None,
               "headroom": block.headroom, "shrink": block.shrink, "infinite": block.infinite,
               "bits_per_element": block.bits_per_element, "source": block.source}


def unit_rows() -> Iterator[dict[str, object]]:
    import ipu.machine  # noqa: F401  (registers the units of the IPU)
    from fpsim.records.units import UNITS

    for name, unit in sorted(UNITS.items()):
        yield {"name": name, "inputs": [f.name for f in unit.inputs],
               "partials": unit.partials.name, "calls": unit.calls, "terms": unit.terms,
               "window": unit.window, "cut": str(unit.cut), "accumulator": str(unit.accumulator),
               "rounding": str(unit.rounding), "instruction": unit.instruction,
               "evidence": {c: str(fact.evidence) for c, fact in unit.facts.items()}}
    yield from scaled_unit_rows()


def scaled_unit_rows() -> Iterator[dict[str, object]]:
    from fpsim.records.scaled_units import ScaledUnit
    from fpsim.records.units import SCALED_UNITS

    for name, unit in sorted(SCALED_UNITS.items()):
        assert isinstance(unit, ScaledUnit)
        yield {"name": name, "blocks": True, "inputs": [f.name for f in unit.inputs],
               "scales": [f.name for f in unit.scale_formats], "scale_block": unit.scale_block,
               "terms": unit.terms, "group": unit.group, "window": unit.window,
               "accumulator": str(unit.accumulator), "rounding": str(unit.rounding),
               "promotion": unit.promotion, "instruction": unit.instruction,
               "evidence": {c: str(fact.evidence) for c, fact in unit.facts.items()}}


def recipe_rows() -> Iterator[dict[str, object]]:
    from fpsim.records.recipes import RECIPES

    for name, recipe in RECIPES.items():
        yield {"name": name, "source": recipe.source, "history": recipe.history} | {
            product: {"left": _operand(rule.left), "right": _operand(rule.right), "unit": rule.unit}
            for product, rule in recipe.rules.items()
        }


def bench_rows() -> Iterator[dict[str, object]]:
    from ipu.experiments.bench import TOPICS

    for name, line in TOPICS.items():
        yield {"name": name, "measures": line}


def published_lines() -> Iterator[str]:
    """Published claims, with the file that computes each of them again."""
    for row in published_rows():
        yield f"{row['name']}  {row['budget_seconds']:4.0f} s  {row['claim']}"
        yield f"    {row['source']}"
    yield ""
    yield "compute all of them again, with verdicts: fpsim run published"


def published_rows() -> Iterator[dict[str, object]]:
    from ipu.experiments.published.gallery import claims, claims_of

    for experiment in claims():
        for claim in claims_of(experiment):
            yield {"name": experiment.name, "part": claim.part, "claim": claim.statement,
                   "source": claim.source, "setup": claim.setup, "left_open": claim.missing,
                   "budget_seconds": experiment.budget}


#: Kind -> (lines for people, rows for programs).
KINDS = {
    "experiments": (experiment_lines, experiment_rows), "formats": (format_lines, format_rows),
    "units": (unit_lines, unit_rows), "bench": (bench_lines, bench_rows),
    "recipes": (recipe_lines, recipe_rows),
    "published": (published_lines, published_rows),
}


@click.command("list")
@click.argument("kind", default="experiments", metavar=f"[{'|'.join(KINDS)}]",
                shell_complete=completing(lambda: list(KINDS)))
@with_json
def command(kind: str, as_json: bool) -> None:
    """Show what there is: experiments (default), formats, units, recipes, benchmarks,
    published claims."""
    if kind not in KINDS:
        raise click.UsageError(f"kind={kind!r} is not known; use one of {', '.join(KINDS)}")
    lines, rows = KINDS[kind]
    if as_json:
        echo_json(list(rows()))
        return
    for line in lines():
        click.echo(line)
