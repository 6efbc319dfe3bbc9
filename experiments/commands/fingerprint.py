"""fpsim fingerprint: what a matrix unit does, found from outside."""

from __future__ import annotations

from dataclasses import asdict

import click

from ipu.experiments.commands.options import bad_input, echo_json, with_json


@click.command("fingerprint")
@click.option("--unit", default="all", show_default=True, metavar="NAME|all",
              help="See: fpsim list units.")
@with_json
def command(unit: str, as_json: bool) -> None:
    """Probe matrix units: terms, order, window, cut, digits, rounding, stores, monotone or not."""
    import ipu.machine  # noqa: F401  (registers the units of the IPU)
    from fpsim.inspect.fingerprint import fingerprint
    from fpsim.records.units import UNITS, find_unit
    from ipu.experiments.lab.progress import progress

    with bad_input():
        units = sorted(UNITS) if unit == "all" else [find_unit(unit).name]
    if as_json:
        probed = progress(units, "units")
        echo_json([{"unit": name, **asdict(fingerprint(name))} for name in probed])
        return
    row = "{:<27} {:>5}  {:<9} {:>6}  {:<8}  {:>6}  {:<8} {:>6}  {:>8}  {:<6}  {:<5}  {:<10}  {}"
    click.echo(row.format("unit", "terms", "order", "window", "cut", "digits", "rounding", "stored",
                          "channels", "joined", "exact", "subnormals", "monotone"))
    for name in progress(units, "units"):
        cells = asdict(fingerprint(name))
        click.echo(row.format(name, *(_word(key, value) for key, value in cells.items())))


def _word(key: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ("all" if key == "window" else "-") if value is None else str(value)
