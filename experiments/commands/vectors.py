"""fpsim vectors: test vectors of a format or a matrix unit, for testbenches."""

from __future__ import annotations

import click

from ipu.experiments.commands.options import bad_input


@click.command("vectors")
@click.argument("name", metavar="FORMAT|BLOCK|UNIT")
@click.option("--operation", default="convert", show_default=True,
              metavar="convert|add|subtract|multiply|divide|sqrt|fma",
              help="Of a format; conversions take binary32 numbers.")
@click.option("--mode", default="RNE", show_default=True, metavar="MODE",
              help="RNE RNA RNZ RTZ RTP RTN RAZ RTO SR_EQUAL SR.")
@click.option("--bits", type=click.IntRange(1, 32), default=None,
              help="Random bits of --mode SR; they are a column.")
@click.option("--as", "form", type=click.Choice(["hex", "c", "systemverilog"]), default="hex",
              show_default=True, help="How rows are written.")
@click.option("--count", type=click.IntRange(1), default=1000, show_default=True,
              help="Rows: hard ones first, then operands at random.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
def command(
    name: str, operation: str, mode: str, bits: int | None, form: str, count: int, seed: int
) -> None:
    """Operands, results and flags, hard cases first, by exact fractions.

    UNIT is a name of `fpsim list units`; a row is one pass. BLOCK is a block-scaled format of
    `fpsim list formats`; a row is one block: its numbers, scale and codes, without flags.
    """
    with bad_input():
        import ipu.machine  # noqa: F401  (registers the units of the IPU)
        from fpsim.judge.verify.block_vectors import of_block
        from fpsim.judge.verify.vectors import of_format, of_unit, written
        from fpsim.records.blocks import BLOCKS, find_block
        from fpsim.records.formats import find_number_format
        from fpsim.records.rounding import SR, find_rounding
        from fpsim.records.units import UNITS, find_unit

        if bits is not None and mode.upper() != "SR":
            raise ValueError(f"bits={bits} goes with --mode SR; drop it or change the mode")
        rounding = SR(bits) if bits is not None else find_rounding(mode)
        is_unit = name.upper() in (unit.upper() for unit in UNITS)
        is_block = name.lower() in BLOCKS
        if (is_unit or is_block) and operation != "convert":
            raise ValueError(
                f"operation={operation!r} goes with a format; drop it for a unit or a block"
            )
        if is_block:
            vectors = of_block(find_block(name), rounding, count, seed)
        elif is_unit:
            vectors = of_unit(find_unit(name), rounding, count, seed)
        else:
            vectors = of_format(find_number_format(name), operation, rounding, count, seed)
    for line in written(vectors, form):
        click.echo(line)
