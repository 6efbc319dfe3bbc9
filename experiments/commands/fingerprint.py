"""fpsim fingerprint: what a matrix unit does, found from outside."""

from __future__ import annotations

import click

from experiments.commands.options import bad_input


@click.command("fingerprint")
@click.option("--unit", default="all", show_default=True, metavar="NAME|all",
              help="See: fpsim list units.")  # fmt: skip
def command(unit: str) -> None:
    """Probe matrix units: terms, window, cut, rounding, digits, monotone or not."""
    import ipu.machine  # noqa: F401  (registers the units of the IPU)
    from fpsim.fingerprint import fingerprint
    from fpsim.units import UNITS, find_unit

    with bad_input():
        units = sorted(UNITS) if unit == "all" else [find_unit(unit).name]
    row = "{:<26} {:>5} {:>6}  {:<9} {:<8} {:>6}  {:<5}  {:<10}  {}".format
    click.echo(row("unit", "terms", "window", "cut", "rounding", "digits", "exact", "subnormals",
                   "monotone"))  # fmt: skip
    for name in units:
        f = fingerprint(name)
        window = "all" if f.window is None else f.window
        truths = ("yes" if t else "no" for t in (f.exact, f.subnormals, f.monotone))
        click.echo(row(name, f.terms, window, f.cut or "none", f.rounding, f.digits, *truths))
