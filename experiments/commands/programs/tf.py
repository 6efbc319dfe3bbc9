"""`fpsim tf [--tf1] PROGRAM ARGS`: a TensorFlow program, unedited, on the simulated machine."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
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
from ipu.installation import not_installed

if TYPE_CHECKING:
    from ipu.frontends.processes.programs import ProgramError
    from ipu.members.transport import StoppedError
    from ipu.run.ways import Way

__all__ = ["command"]

#: The folder of the pages where none is named.
_OUT = Path("reports", "tensorflow")


def _machine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--tf1, --seed, --target, --ties, --found-inf and --reference."""
    for option in (
        click.option("--reference", is_flag=True, help="TensorFlow executes the program itself."),
        click.option("--no-memory-check", is_flag=True,
                     help="Programs that do not fit the memory of an IPU run all the same."),
        click.option("--found-inf", type=click.Choice(["values", "status"]), default=None,
                     help="What loss scalers look at where overflow saturates: gradients, which "
                          "refuses them there, or the status register  [default: status]"),
        click.option("--ties", type=click.Choice(["all", "first"]), default="all",
                     show_default=True,
                     help="Of maximum pooling: the machine's rule, or TensorFlow's."),
        click.option("--target", default=None, help="The machine  [default: mk2; hypothetical for "
                     "recipes of blocks]"),
        click.option("--seed", type=Seed(), default=0, show_default=True,
                     help="Of the machine's random bits."),
        click.option("--unconfigured", is_flag=True, help="A program without "
                     "configure_ipu_system() has one IPU; else its launches are refused."),
        click.option("--tf1", is_flag=True, help="The program is written for TensorFlow 1."),
    ):
        function = option(function)
    return function


def _refuse_native(_: click.Context, __: click.Parameter, is_given: bool) -> None:
    """Say why there is none, to those who know it from fpsim torch.

    Raises    click.UsageError.
    """
    if is_given:
        raise click.UsageError(
            "--native is of fpsim torch alone: between the nodes of a graph values stay arrays of "
            "the machine, and composites, random numbers and loops are its own; use --reference, "
            "by which TensorFlow executes the whole program, or compare two policies"
        )


@click.command(
    "tf",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--policy", default="f32", show_default=True, metavar="WAY",
              help="Formats of float32 tensors, as fp16, a recipe, as nvfp4, or a way, as fp16+sr.")
@click.option("--sr/--no-sr", default=None, help="Stochastic rounding, whatever the program says.")
@click.option("--count", is_flag=True, help="Count and print what happened; without a page too.")
@click.option("--report", "out", type=click.Path(path_type=Path), default=None, metavar="OUT",
              help="Folder for the page of the run, each worker's below it; counts.")
@click.option("--shadow", type=click.IntRange(1), default=None, metavar="K",
              help="Carry the values in binary64 beside those of the first K steps; counts.")
@click.option("--native", is_flag=True, is_eager=True, expose_value=False, hidden=True,
              callback=_refuse_native, help="Of fpsim torch alone.")
@pair_options
@_machine_options
@click.argument("program", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(
    program: Path, arguments: tuple[str, ...], policy: str, sr: bool | None, count: bool,
    out: Path | None, compared: str | None, pairs: int, endpoint: str, margin: float | None,
    jobs: int, pair: int | None, nudge: bool, json_path: Path | None, digest: Path | None,
    keep: int | None, sketch: bool, perturb: str | None, shadow: int | None, **choices: Any,
) -> int:
    """Run a TensorFlow program with Graphcore's ipu module on the simulated machine.

    Options come before PROGRAM; what follows it goes to the program. The exit status is the
    program's; 1 where it stops with an error, told with its file and line.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise click.ClickException(
            f"{not_installed('TensorFlow', 'tensorflow')} (Python 3.11 to 3.13)"
        )
    with bad_input():
        from ipu.run.ways import Way, parse_ways

        ways = parse_ways(compared) if compared is not None else []
        way = Way.parse(policy)
        if ways:  # which a run in this process tells
            choices["found_inf"] = choices["found_inf"] or "status"
        for training in (*ways, way):
            training.check_for_graphs()
        if out is not None:
            make_folder(out)
    if shadow is not None and ways:
        raise click.UsageError("--shadow follows one run; leave --compare out")
    if choices["reference"] and (count or out or ways or shadow):
        raise click.UsageError("--reference runs nothing on the machine; leave reports out")
    if choices["reference"] and (sr is not None or policy != "f32"):
        raise click.UsageError(
            "--reference runs nothing on the machine; leave --policy and --sr out"
        )
    if not ways:
        import ipu.frontends.tensorflow  # noqa: F401
        from ipu.frontends.tensorflow.engine.launch import nudged, perturbed
        from ipu.run.seeding import seeded

        choices["seed"] += pair or 0
        with seeded(pair) if pair is not None else nullcontext(), (
            nudged() if nudge else nullcontext()
        ), (perturbed(perturb, choices["seed"]) if perturb else nullcontext()):
            return _run(program, arguments, way, way.sr or sr, out, choices, json_path,
                        DigestOptions(digest, keep, sketch, perturbed=perturb), shadow,
                        count=count)
    if sr is not None or policy != "f32":
        raise click.UsageError("--compare names the ways; leave --policy and --sr out")
    choices["target"] = target_of(ways, choices["target"])

    def line_of(variant: Way, more: Sequence[str]) -> list[str]:
        return ["tf", "--policy", str(variant), "--sr" if variant.sr else "--no-sr", *more,
                *as_options(choices), str(program), *arguments]

    from ipu.members.ending import name_of_process

    options = PairOptions(pairs, endpoint, margin, jobs)
    folder = folder_of(out or _OUT, name_of_process())
    return compare(program, ways, folder, options, line_of)


def _run(
    program: Path, arguments: tuple[str, ...], way: Way, sr: bool | None, out: Path | None,
    choices: dict[str, Any], json_path: Path | None, digests: DigestOptions, shadow: int | None,
    *, count: bool,
) -> int:
    from ipu.frontends.processes.programs import ProgramError, run_file
    from ipu.frontends.tensorflow.engine.current import choose, current_run
    from ipu.frontends.tensorflow.engine.machine import Choices
    from ipu.members.ending import leave_all
    from ipu.members.transport import StoppedError
    from ipu.ops.heap import keep_freed_memory
    from ipu.run.patterns import PatternError

    keep_freed_memory()
    count = count or shadow is not None
    is_tf1 = choices.pop("tf1")
    choices["check_memory"] = not choices.pop("no_memory_check")
    found_inf = choices.pop("found_inf")
    with bad_input():
        choose(Choices(
            policy=way.policy, sr=sr, changes=way.changes, count=count or bool(out or json_path),
            found_inf=found_inf or "status", **choices,
        ))
        if shadow is not None:
            current_run().shadow(shadow)
    if is_tf1:
        from ipu.frontends.tensorflow.facade import install_facade

        install_facade()
    status, stopped, interrupt = 1, "", None
    try:
        with digesting(current_run(), digests, choices["seed"]):
            status = run_file(program, arguments)
            leave_all()
        current_run().check_patterns()
    except PatternError as error:
        raise click.UsageError(str(error)) from None
    except (ProgramError, StoppedError) as error:
        status, stopped = _ended(error)
        click.echo(f"fpsim: {stopped}", err=True)
    except KeyboardInterrupt as error:
        sys.last_value = error
        stopped, interrupt = "interrupted", error
    if found_inf is None:
        tell_status(current_run().report())
    if count or out is not None:
        _tell(program.name, out, stopped, is_printed=count)
    if json_path is not None:
        write_json(json_path, current_run().report())
    is_printed = count or stopped
    if not is_printed and (out is not None or sr or way != type(way)()):
        _warn_if_unreached()
    if interrupt is not None:
        raise interrupt
    return status


def _warn_if_unreached() -> None:
    """A run beside the machine has none of the formats that were asked for."""
    from ipu.frontends.tensorflow.engine.current import UNREACHED, current

    if not current().launches:
        click.echo(f"fpsim: nothing was computed on the machine. {UNREACHED}", err=True)


def _ended(error: ProgramError | StoppedError) -> tuple[int, str]:
    """Status and sentence of an error: 2 where workers did not come together, 3 where one stopped.

    The end of the process tells other workers of the error by `sys.last_value`.
    """
    from ipu.members.cluster import ClusterError
    from ipu.members.transport import JoinError, StoppedError

    cause = error if isinstance(error, StoppedError) else error.__cause__
    sys.last_value = error if cause is None else cause
    if isinstance(cause, ClusterError | JoinError | StoppedError):
        return 3 if isinstance(cause, StoppedError) else 2, str(cause)
    return 1, str(error)


def _tell(title: str, out: Path | None, stopped: str, *, is_printed: bool) -> None:
    """Print what the run did and why it stopped, and write its page."""
    from ipu.experiments.commands.programs.plans import write_plans
    from ipu.frontends.tensorflow.engine.current import current_run
    from ipu.members.ending import name_of_process

    run = current_run()
    told = run.report()
    told["stopped"] = stopped
    if is_printed:
        click.echo(f"\n{told}", err=True)
    if out is not None:
        out = folder_of(out, name_of_process())
        tell_page(out, told, run.advice(told), title, is_printed=is_printed)
        write_plans(out, run.costs, "tensorflow")
