"""fpsim doctor: whether this installation works, and what a report of a fault must say of it."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version

import click

from ipu.experiments.commands.options import echo_json, with_json

#: Frameworks whose programs run on the machine, and the extra that brings each.
FRAMEWORKS = {"torch": "torch", "tensorflow": "tensorflow", "tf-keras": "tensorflow"}


@click.command("doctor")
@click.option("--machine", is_flag=True, help="Also versions, processor and kernels.")
@with_json
def command(machine: bool, as_json: bool) -> int:
    """Compute a few results and compare their digests with those that this version publishes.

    Exit status 1 where one differs. --machine prints what belongs into a report of a fault or into
    the appendix of a paper.
    """
    from ipu.experiments.lab.checkup import findings
    from ipu.experiments.lab.progress import progress

    results = list(progress(findings(), "checks"))
    facts = _machine() if machine else {}
    status = 0 if all(finding.is_equal for finding in results) else 1
    if as_json:
        checks = [finding._asdict() | {"equal": finding.is_equal} for finding in results]
        echo_json([{"fact": name, "value": value} for name, value in facts.items()] + checks)
        return status
    for name, value in facts.items():
        click.echo(f"{name:<28}{value}")
    for finding in results:
        word = "equal" if finding.is_equal else f"DIFFERS, published {finding.published}"
        click.echo(f"{finding.check:<28}{finding.digest}  {word}")
    if status:
        click.echo("A result differs from the version's: report it with fpsim doctor --machine.")
    return status


def _machine() -> dict[str, str]:
    """Versions, the processor, and where kernels come from."""
    from fpsim.kernels.compiling import cache_folder
    from fpsim.kernels.levels import LEVELS, host_features
    from fpsim.kernels.packs import find_pack
    from fpsim.kernels.sources import digest_of_sources
    from ipu.experiments.lab.versions import commit, processor, versions

    pack = find_pack()
    levels = [name for name, needs in LEVELS.items() if host_features().issuperset(needs)]
    return {
        **versions(),
        **{name: _installed(name, extra) for name, extra in FRAMEWORKS.items()},
        "commit": commit() or "no checkout",
        "processor": processor(),
        "cores": str(os.cpu_count() or 1),
        "levels": ", ".join(levels) or "neither an x86-64 nor an aarch64",
        "kernels compiled for": os.environ.get("FPSIM_CPU_LEVEL") or "this processor",
        "kernels": digest_of_sources(),
        "kept in": str(cache_folder()),
        "pack": pack.level if pack else "none: kernels are compiled when they are first needed",
    }


def _installed(name: str, extra: str) -> str:
    from ipu.installation import how_to_install

    try:
        return version(name)
    except PackageNotFoundError:
        return f"not installed; {how_to_install(extra)}"
