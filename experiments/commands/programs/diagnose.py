"""fpsim diagnose PROGRAM.py ARGS…: what hurts an unedited PyTorch program, and what mends it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fpsim.state.files import write_whole
from ipu.experiments.commands.options import Seed, bad_input
from ipu.experiments.commands.programs.comparing import make_folder
from ipu.experiments.commands.programs.torch import check_program

if TYPE_CHECKING:
    from ipu.run.diagnosis import Diagnosis


@click.command("diagnose", context_settings={"allow_interspersed_args": False})
@click.argument("program", metavar="PROGRAM.py")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="ARGS...")
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as of python -m.")
@click.option("--policy", default="fp16", show_default=True, metavar="WAY",
              help="Formats, or a way, as of fpsim torch.")
@click.option("--steps", type=click.IntRange(1), default=10, show_default=True, metavar="K",
              help="Steps of an optimiser after which each run stops.")
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True,
              help="No run begins after so many; sites may then be more than are needed.")
@click.option("--seed", type=Seed(), default=0, show_default=True, help="Of stochastic rounding.")
@click.option("--report", "out", type=click.Path(path_type=Path), default=None, metavar="OUT",
              help="Folder for diagnosis.txt, diagnosis.json and remedy.patch.")
def command(
    program: str, arguments: tuple[str, ...], is_module: bool, policy: str, steps: int,
    seconds: float, seed: int, out: Path | None,
) -> int:
    """Run the first steps of PROGRAM.py ARGS... again and again, and tell what hurts it.

    Each run gives other layers back to binary32, from the same seeds. Told are the cause, the
    sites that are necessary and sufficient for the harm, and remedies, each of which was run.
    The exit status is 0 for a program that is healthy, 3 for one that is ill, and 4 where
    binary32 itself does not train, or the program begins no backward pass.
    """
    from ipu.run.diagnosis import patch_of, plain_diagnosis
    from ipu.run.ways import Way

    with bad_input():
        check_program(program, is_module=is_module)
        way = Way.parse(policy)
        if out is not None:
            make_folder(out)
        # Tensors that the program makes float16 are sites as well.
        way = replace(way, changes=replace(way.changes, halves_by_policy=True))
        from ipu.frontends.torch import machine
        from ipu.frontends.torch.program import diagnose_program

        session = machine(way.policy, sr=way.sr, seed=seed, count=True, changes=way.changes)
    started = program if is_module else Path(program)
    diagnosis = diagnose_program(session, started, arguments, steps, seconds)
    click.echo(str(diagnosis))
    patch = ""
    if diagnosis.cure is not None:
        name, text = (program, "") if is_module else (Path(program).name, Path(program).read_text())
        patch = patch_of(diagnosis.cure, way, name, text)
        click.echo(patch)
    if out is not None:
        data = json.dumps(plain_diagnosis(diagnosis), indent=1, ensure_ascii=False)
        for file, content in (("diagnosis.txt", f"{diagnosis}\n"), ("diagnosis.json", data),
                              ("remedy.patch", f"{patch}\n")):
            write_whole(out / file, content.encode())
    return _status(diagnosis)


def _status(diagnosis: Diagnosis) -> int:
    return {"healthy": 0, "ill": 3}.get(diagnosis.answer, 4)
