"""fpsim torch PROGRAM.py ARGS… or -m MODULE ARGS…: an unedited PyTorch program on the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ipu.experiments.commands.options import Seed, bad_input
from ipu.experiments.commands.programs.comparing import (
    as_options,
    compare,
    folder_of,
    make_folder,
    target_of,
    tell_page,
    tell_status,
)
from ipu.experiments.commands.programs.pairing import (
    DigestOptions,
    PairOptions,
    digesting,
    pair_options,
    write_json,
)
from ipu.installation import how_to_install, not_installed

if TYPE_CHECKING:
    from ipu.run.ways import Way

#: The folder of the pages where none is named.
_OUT = Path("reports", "torch")

#: Options of the machine, as `fpsim.torch.machine` has them.
Choices = dict[str, Any]


def _machine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--target, --unit, --ties, --found-inf, --nanoo and --traps."""
    for option in (
        click.option("--traps", is_flag=True,
                     help="Stop at the first invalid operation, division by zero or overflow."),
        click.option("--nanoo", is_flag=True, help="Overflow gives NaN; else it saturates."),
        click.option("--no-memory-check", is_flag=True,
                     help="Programs that do not fit the memory of an IPU run all the same."),
        click.option("--found-inf", type=click.Choice(["values", "status"]), default=None,
                     help="What gradient scalers look at where overflow saturates; values refuses "
                          "them there  [default: status]"),
        click.option("--ties", type=click.Choice(["first", "all"]), default="first",
                     show_default=True, help="Equal maxima of a pooling window."),
        click.option("--unit", default=None, metavar="UNIT",
                     help="With --target hypothetical: a unit of fpsim list units for products."),
        click.option("--target", default=None, metavar="TARGET",
                     help="mk1, mk2, mk2-fp8, bow or hypothetical  [default: mk2; for "
                          "recipes of blocks hypothetical]"),
    ):
        function = option(function)
    return function


@click.command("torch", context_settings={"allow_interspersed_args": False})
@click.argument("program", metavar="PROGRAM.py")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="ARGS...")
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as of python -m.")
@click.option("--policy", default="fp32", show_default=True, metavar="WAY",
              help="Formats, as fp16, mixed, p=f16,c=f16, a recipe, as nvfp4+last2=bf16, or a "
                   "way, as fp16+eps=1e-4.")
@click.option("--sr", is_flag=True, help="Stochastic rounding.")
@click.option("--seed", type=Seed(), default=0, show_default=True, help="Of stochastic rounding.")
@click.option("--step", type=click.IntRange(0), default=0, metavar="N",
              help="Number of the first step, where no checkpoint tells it.")
@click.option("--count", is_flag=True, help="Count and print what happened; without a page too.")
@click.option("--report", "out", type=click.Path(path_type=Path), default=None, metavar="OUT",
              help="Folder for the page of the run; counts.")
@click.option("--shadow", type=click.IntRange(1), default=None, metavar="K",
              help="Carry the values in binary64 beside those of the first K steps; counts.")
@click.option("--native", is_flag=True,
              help="torch computes, not the machine: digests to set beside the machine's.")
@pair_options
@click.option("--replicas", type=click.IntRange(1), default=1, show_default=True,
              help="Processes that run the program and average their gradients.")
@_machine_options
def command(
    program: str, arguments: tuple[str, ...], policy: str, sr: bool, seed: int, count: bool,
    out: Path | None, compared: str | None, pairs: int, endpoint: str, margin: float | None,
    jobs: int, pair: int | None, nudge: bool, json_path: Path | None, digest: Path | None,
    keep: int | None, sketch: bool, perturb: str | None, shadow: int | None, native: bool,
    replicas: int, is_module: bool, **choices: Any,
) -> int:
    """Run PROGRAM.py ARGS... as Python does, with every operation computed by the machine.

    -m MODULE ARGS... runs a module as python -m does.

    Options of fpsim stand before the program, its own after it. The exit status is the program's;
    1 where it stops with an error, told in one line with its file and line.

    With --replicas R, and under `fpsim poprun`, each process is a replica: gradients are averaged
    before a step, and the program takes its share of the data by popdist.getInstanceIndex().
    """
    with bad_input():
        check_program(program, is_module=is_module)
        from ipu.run.ways import Way, parse_ways

        way = Way.parse(f"{policy}+sr" if sr else policy)
        ways = parse_ways(compared) if compared is not None else []
        if ways or replicas > 1:  # which a run in this process tells
            choices["found_inf"] = choices["found_inf"] or "status"
        if out is not None:
            make_folder(out)
    if shadow is not None and (ways or replicas > 1):
        raise click.UsageError(
            "--shadow follows one run in one process; leave --compare and --replicas out")
    if native and (digest is None or ways or replicas > 1 or str(way) != "fp32" or count or out
                   or shadow is not None):
        raise click.UsageError(
            "--native runs nothing on the machine, and goes with --digest FILE alone; leave "
            "policies, reports and --compare out")
    line = [*(["-m"] if is_module else []), program, *arguments]
    if replicas > 1:
        if ways:
            raise click.UsageError("--compare runs in one process; leave --replicas out")
        options = {"policy": way, "seed": seed, "count": count, "report": out, "digest": digest,
                   "keep": keep, "sketch": sketch, **choices}
        return _in_replicas(replicas, [*as_options(options), *line])
    if ways:
        if sr or policy != "fp32":
            raise click.UsageError("--compare names the ways; leave --policy and --sr out")
        out = folder_of(out or _OUT, _name_of_replica())
        choices["target"] = target_of(ways, choices["target"])
        return _compare(line, ways, seed, out, PairOptions(pairs, endpoint, margin, jobs), choices)
    started = program if is_module else Path(program)
    from ipu.frontends.torch.program import nudged, perturbed
    from ipu.run.seeding import seeded

    with seeded(pair) if pair is not None else nullcontext(), (
        nudged() if nudge else nullcontext()
    ), (perturbed(perturb, seed) if perturb else nullcontext()):
        digests = DigestOptions(digest, keep, sketch, perturbed=perturb)
        if native:
            return _run_native(started, arguments, seed, digests)
        return _run(started, arguments, way, seed + (pair or 0), out, choices, json_path,
                    digests, shadow, count=count)


def _run_native(
    program: Path | str, arguments: Sequence[str], seed: int, digests: DigestOptions
) -> int:
    """Digests of a run that torch's own kernels compute."""
    from ipu.frontends.processes.programs import ProgramError
    from ipu.frontends.torch import native
    from ipu.frontends.torch.program import run_program

    session = native()
    try:
        with digesting(session, digests, seed):
            return run_program(session, program, arguments)
    except ProgramError as error:
        click.echo(f"fpsim: {error}", err=True)
        return 1


def _in_replicas(replicas: int, line: list[str]) -> int:
    """The same command in each of so many processes of this computer."""
    from ipu.frontends.popdist.launch import PoprunOptions
    from ipu.frontends.popdist.processes import run

    if find_spec("grpc") is None or find_spec("grpc_tools") is None:
        raise click.UsageError(
            f"--replicas {replicas}: replicas exchange gradients by gRPC, which is not installed; "
            f"install it with: {how_to_install('grpc')}"
        )
    launch = PoprunOptions(instances=replicas, replicas=replicas, transport="grpc")
    return run(launch, ["fpsim", "torch", *line])


def _name_of_replica() -> str | None:
    """This process among those of poprun, which compares by itself."""
    from ipu.frontends.popdist.environment import getInstanceIndex, getNumInstances

    return f"replica-{getInstanceIndex()}" if getNumInstances() > 1 else None


def check_there(program: str, *, is_module: bool) -> None:
    """Refuse a program that is not there.

    Raises    ValueError.
    """
    from ipu.frontends.processes.programs import check_module

    if is_module:
        check_module(program)
    elif not Path(program).is_file():
        raise ValueError(
            f"program={program!r} is not a file; give the path of a .py file, or -m and a module"
        )


def check_program(program: str, *, is_module: bool) -> None:
    """Refuse a program that is not there, and any where torch is not installed.

    It is not imported: a comparison leaves that, which takes seconds, to the processes of its ways.

    Raises    ValueError.
    """
    check_there(program, is_module=is_module)
    if find_spec("torch") is None:
        raise ValueError(not_installed("PyTorch", "torch"))


def _run(
    program: Path | str, arguments: Sequence[str], way: Way, seed: int, out: Path | None,
    choices: Choices, json_path: Path | None, digests: DigestOptions, shadow: int | None,
    *, count: bool,
) -> int:
    from ipu.experiments.commands.programs.plans import write_plans
    from ipu.frontends.processes.programs import ProgramError
    from ipu.frontends.torch import machine
    from ipu.frontends.torch.program import join_replicas, run_program
    from ipu.members.transport import JoinError, StoppedError
    from ipu.run.patterns import PatternError

    check_memory = not choices.pop("no_memory_check")
    count = count or shadow is not None
    found_inf = choices.pop("found_inf")
    with bad_input():
        session = machine(
            way.policy, sr=way.sr, seed=seed, count=count or bool(out or json_path),
            changes=way.changes, check_memory=check_memory, found_inf=found_inf or "status",
            **choices,
        )
        if shadow is not None:
            session.shadow(shadow)
    try:
        if join_replicas(session) > 1:
            name = f"replica-{session.replica}"
            out = None if out is None else folder_of(out, name)
            digests = digests.of(name)
    except (JoinError, ImportError, ValueError) as error:
        raise click.UsageError(str(error)) from None
    status, stopped, interrupt = 1, "", None
    try:
        with digesting(session, digests, seed):
            status = run_program(session, program, arguments)
    except PatternError as error:
        raise click.UsageError(str(error)) from None
    except (ProgramError, StoppedError) as error:
        stopped = str(error)
        status = 3 if isinstance(error, StoppedError) else 1
        click.echo(f"fpsim: {error}", err=True)
    except KeyboardInterrupt as error:
        stopped, interrupt = f"interrupted in step {session.step}", error
    report = session.report()
    report["stopped"] = stopped
    write_json(json_path, report)
    if found_inf is None:
        tell_status(report)
    if count:
        click.echo(f"\n{report}", err=True)
    if out is not None:
        tell_page(out, report, session.advice(report), Path(program).name, is_printed=count)
        write_plans(out, session.costs, "poptorch")
    is_printed = count or stopped
    if report.get("unreached") and not is_printed and (out is not None or str(way) != "fp32"):
        click.echo(f"fpsim: nothing was computed on the machine. {report['unreached']}", err=True)
    if interrupt is not None:
        raise interrupt
    return status


def _compare(
    program: Sequence[str], ways: Sequence[Way], seed: int, out: Path, options: PairOptions,
    choices: Choices,
) -> int:
    """Each way with its formats also for tensors that the program makes float16.

    program    the program with its arguments, and -m before a module.
    """

    def line_of(way: Way, more: Sequence[str]) -> list[str]:
        return ["torch", "--policy", f"{way}+halves", "--seed", str(seed), *more,
                *as_options(choices), *program]

    name = program[1] if program[0] == "-m" else program[0]
    return compare(Path(name), ways, out, options, line_of)
