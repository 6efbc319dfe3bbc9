"""fpsim warmup: compile the kernels that most programs need, or pack them for an installation."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click

from ipu.experiments.commands.options import bad_input

#: In a process of its own: numba chooses its processor once. Its arguments are folder and level.
#: It takes nothing from packs that are there: what it does not compile itself would not be packed.
PACK = """
import sys
from pathlib import Path
from fpsim.kernels import keeping
from fpsim.kernels.compiling import cache_folder
from fpsim.kernels.packs import write_pack
from ipu.experiments.bench.warm import ADDERS, make_calls
keeping.find_pack = lambda: None
for adders in (False, True):
    for module in ADDERS:
        module.HAS_ADDERS = adders
    for name in make_calls():
        print(name, flush=True)
write_pack(Path(sys.argv[1]), sys.argv[2], cache_folder())
"""


@click.command("warmup")
@click.option("--pack", "folder", type=click.Path(path_type=Path, file_okay=False), default=None,
              help="Write packs of kernels there, one for each level of processors.")
@click.option("--level", "levels", multiple=True,
              help="A level to pack, x86-64-v2 … x86-64-v4-fp16 or aarch64 (default: all of here).")
def command(folder: Path | None, levels: tuple[str, ...]) -> None:
    """Compile kernels of arithmetic, products, and training steps ahead of their first use.

    They are kept where every process looks for them. With --pack they are packed for
    fpsim/kernels/packs of an installation of the same sources, Python and numba, where they are
    found without being compiled.
    """
    if folder is None:
        with bad_input():
            if levels:
                raise ValueError(f"level={levels[0]!r} is for packs; add --pack FOLDER")
        _warm_up()
        return
    with bad_input():
        checked = check_levels(levels)
    for level in checked:
        path = _pack(folder, level)
        click.echo(f"wrote {path}: {path.stat().st_size / 1e6:.1f} MB")


def _warm_up() -> None:
    from ipu.experiments.bench.warm import make_calls
    from ipu.experiments.lab.progress import progress

    start, count = time.perf_counter(), 0
    for _ in progress(make_calls(), "warmup"):
        count += 1
    click.echo(f"{count} kinds of calls are ready, after {time.perf_counter() - start:.0f} s")


def check_levels(levels: tuple[str, ...]) -> tuple[str, ...]:
    """The levels to pack: those named, or all that this processor has.

    Raises    ValueError for one that is not known, or that this processor lacks.
    """
    from fpsim.kernels.levels import LEVELS, host_features

    here = tuple(name for name, needs in LEVELS.items() if host_features().issuperset(needs))
    for level in levels:
        if level not in here:
            usable = ", ".join(here) or "another processor"
            raise ValueError(f"level={level!r} cannot be packed here; use {usable}")
    return levels or here


def _pack(folder: Path, level: str) -> Path:
    """A pack, made in a process of that level with an empty cache."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "FPSIM_CPU_LEVEL": level, "FPSIM_CACHE_DIR": cache}
        process = subprocess.Popen(
            [sys.executable, "-c", PACK, str(folder), level], env=environment, text=True,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        for line in process.stdout:
            click.echo(f"{level}: {line}", nl=False, err=True)
        if process.wait():
            raise click.ClickException(f"packing {level} failed; its error stands above")
    return folder / f"{level}-{sys.implementation.cache_tag}.zip"
