"""fpsim plan PROGRAM.py ARGS…: which plan an unedited PyTorch program should have on IPUs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ipu.experiments.commands.options import Seed, bad_input
from ipu.experiments.commands.programs.comparing import make_folder
from ipu.experiments.commands.programs.torch import check_program

if TYPE_CHECKING:
    from ipu.plan.chain import LayerChain
    from ipu.plan.search import Search

#: Micro-batches of an update for each IPU, where the program makes one alone.
_EACH = 8


@click.command("plan", context_settings={"allow_interspersed_args": False})
@click.argument("program", metavar="PROGRAM.py")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="ARGS...")
@click.option("--ipus", type=click.IntRange(1), default=4, show_default=True,
              help="IPUs that there are.")
@click.option("--micro-batches", type=click.IntRange(1), default=None, metavar="N",
              help="Of one update, of all replicas  [default: those of the program; 8 for each "
                   "IPU where it has one].")
@click.option("--replicas", type=click.IntRange(1), default=None,
              help="Exactly so many  [default: any].")
@click.option("--policy", default="fp16", show_default=True, metavar="WAY",
              help="Formats, as of fpsim torch.")
@click.option("--target", default="mk2", show_default=True, metavar="TARGET",
              help="mk1, mk2, mk2-fp8 or bow.")
@click.option("--seed", type=Seed(), default=0, show_default=True, help="Of stochastic rounding.")
@click.option("--report", "out", type=click.Path(path_type=Path), default=None, metavar="OUT",
              help="Folder for a page with pictures, the front and the code.")
def command(
    program: str, arguments: tuple[str, ...], ipus: int, micro_batches: int | None,
    replicas: int | None, policy: str, target: str, seed: int, out: Path | None,
) -> int:
    """Say which plan PROGRAM.py should have on so many IPUs, and write it as PopTorch code.

    The program runs unedited until its first update is over, and is then ended. Its layers are
    measured on the simulated machine; cuts, schedules, recomputation, offload, shards and replicas
    are searched on the accounts of time and memory, declared models both. No plan changes a bit
    but for the number of replicas, which moves the order of a sum.
    """
    from ipu.machine.target import find_target
    from ipu.plan.search import POPTORCH, PlanSpace, search

    with bad_input():
        check_program(program, is_module=False)
        if out is not None:
            make_folder(out)
        machine = find_target(target)
    start = time.process_time()
    chain = _measured(Path(program), arguments, policy, target, seed)
    if chain is None:
        return 2
    total = micro_batches or (chain.count if chain.count > 1 else _EACH * ipus)
    with bad_input():
        space = PlanSpace(
            ipus, total, POPTORCH, replicas=replicas, shard_minimum=8192, sends_all=False,
        )
        _check_layers(chain, space)
        result = search(chain, space, machine)
    _tell(result, time.process_time() - start)
    if out is not None:
        from ipu.experiments.pictures.plan_page import write_plan_page
        from ipu.frontends.poptorch.plan_code import plan_code

        best = result.best or result.smallest
        names = [chain.layers[cut].name for cut in best.cuts]
        path = write_plan_page(out, result, Path(program).name, plan_code(best.plan, names))
        click.echo(path.resolve(), err=True)
    return 0 if result.best is not None else 1


def _measured(
    program: Path, arguments: tuple[str, ...], policy: str, target: str, seed: int
) -> LayerChain | None:
    """The layers of the program's first step; None, with a sentence, where there was none."""
    from ipu.frontends.processes.programs import ProgramError
    from ipu.frontends.torch import machine
    from ipu.frontends.torch.metering import StepMeasured
    from ipu.frontends.torch.program import run_program
    from ipu.run.ways import Way

    with bad_input():
        way = Way.parse(policy)
        session = machine(
            way.policy, sr=way.sr, seed=seed, changes=way.changes, target=target,
            check_memory=False,
        )
        meter = session.measure()
    try:
        run_program(session, program, arguments)
    except StepMeasured:
        return meter.chain
    except ProgramError as error:
        click.echo(f"fpsim: {error}", err=True)
        return None
    click.echo(f"fpsim: {meter.why_not(program.name)}", err=True)
    return None


def _check_layers(chain: LayerChain, space: object) -> None:
    """Refuse IPUs that one replica cannot use."""
    from ipu.plan.search import PlanSpace

    assert isinstance(space, PlanSpace)
    ipus = space.ipus // space.replicas if space.replicas else 1
    if ipus > len(chain):
        raise ValueError(
            f"ipus={space.ipus} with replicas={space.replicas}: the model has {len(chain)} layers "
            f"that can be cut, and a replica takes at most one IPU for each; use "
            f"ipus={len(chain) * (space.replicas or 1)}, or more replicas"
        )


def _tell(result: Search, seconds: float) -> None:
    from ipu.frontends.poptorch.plan_code import plan_code
    from ipu.plan.written import search_lines

    for line in search_lines(result):
        click.echo(line)
    best = result.best
    if best is not None:
        names = [result.chain.layers[cut].name for cut in best.cuts]
        click.echo(f"\n{plan_code(best.plan, names)}")
    click.echo(f"fpsim: measured and searched in {seconds:.1f} s of processor time", err=True)
