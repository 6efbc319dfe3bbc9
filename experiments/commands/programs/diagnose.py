"""fpsim diagnose PROGRAM.py ARGS…: what hurts an unedited program, and what mends it."""

from __future__ import annotations

import ast
import importlib.util
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fpsim.state.files import write_whole
from ipu.experiments.commands.options import Seed, bad_input
from ipu.experiments.commands.programs.comparing import as_options, make_folder, target_of
from ipu.experiments.commands.programs.torch import check_program, check_there
from ipu.installation import not_installed

if TYPE_CHECKING:
    from ipu.run.diagnosis import Diagnosis
    from ipu.run.run import Run
    from ipu.run.ways import Way

__all__ = ["command", "framework_of"]

#: Front ends by what a program imports, in the order in which they are looked for.
_FRONT_ENDS = {
    "tensorflow": "tensorflow", "keras": "tensorflow", "tf_keras": "tensorflow",
    "ipu_tensorflow_addons": "tensorflow", "torch": "torch", "poptorch": "torch",
}


@click.command("diagnose", context_settings={"allow_interspersed_args": False})
@click.argument("program", metavar="PROGRAM.py")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="ARGS...")
@click.option("-m", "is_module", is_flag=True, help="PROGRAM is a module, as of python -m.")
@click.option("--policy", default="fp16", show_default=True, metavar="WAY",
              help="Formats, or a way, as of fpsim torch and fpsim tf.")
@click.option("--framework", type=click.Choice(["torch", "tensorflow"]), default=None,
              help="What the program is written in  [default: what it imports, else torch]")
@click.option("--tf1", is_flag=True, help="The program is written for TensorFlow 1.")
@click.option("--unconfigured", is_flag=True,
              help="A program of TensorFlow without configure_ipu_system() has one IPU.")
@click.option("--steps", type=click.IntRange(1), default=None, metavar="K",
              help="Steps of an optimiser after which each run stops  [default: 10, and 40 where "
                   "these lose digits without harm, or part by what may be chance]")
@click.option("--seconds", type=click.FloatRange(1), default=60.0, show_default=True,
              help="That it takes; with few of them more sites are told than are needed.")
@click.option("--seed", type=Seed(), default=0, show_default=True, help="Of stochastic rounding.")
@click.option("--target", default=None, metavar="TARGET",
              help="As of fpsim torch and fpsim tf.")
@click.option("--nanoo", is_flag=True, help="Overflow gives NaN; else it saturates.")
@click.option("--found-inf", type=click.Choice(["values", "status"]), default="status",
              show_default=True, help="What gradient scalers look at.")
@click.option("--report", "out", type=click.Path(path_type=Path), default=None, metavar="OUT",
              help="Folder for index.html, diagnosis.txt, diagnosis.json and remedy.patch.")
def command(
    program: str, arguments: tuple[str, ...], is_module: bool, policy: str, framework: str | None,
    tf1: bool, unconfigured: bool, steps: int | None, seconds: float, seed: int, target: str | None,
    nanoo: bool, found_inf: str, out: Path | None,
) -> int:
    """Run the first steps of PROGRAM.py ARGS... again and again, and tell what hurts it.

    Each run gives other layers back to binary32, from the same seeds. Told are the cause, the
    sites that are necessary and sufficient for the harm, and remedies, each of which was run.
    What is known after the first two runs, and after the remedies, goes to standard error.
    The exit status is 0 for a program that is healthy, 3 for one that is ill, and 4 where
    binary32 itself does not train, the program begins no backward pass, or the harm may be
    chance.
    """
    begin = time.monotonic() - time.process_time()  # of the process; frameworks are imported below
    from ipu.run.pages.sheet import write_sheet
    from ipu.run.patches import patch_of
    from ipu.run.ways import Way

    with bad_input():
        is_graph = tf1 or unconfigured or (framework or framework_of(program)) == "tensorflow"
        if is_graph:
            _check_graph_program(program, is_module=is_module)
            if nanoo:
                raise ValueError("--nanoo is not of TensorFlow, where the program configures it")
        else:
            check_program(program, is_module=is_module)
        way = Way.parse(policy)
        target = target_of([way], target)
        if out is not None:
            make_folder(out)
        run = (
            _run_of_graphs(way, seed, target, tf1=tf1, unconfigured=unconfigured,
                           found_inf=found_inf)
            if is_graph else _session(way, seed, target, nanoo=nanoo, found_inf=found_inf)
        )
    from ipu.frontends.processes.diagnosing import diagnose_program

    started = program if is_module else Path(program)
    diagnosis = diagnose_program(
        run, started, arguments, steps, seconds,
        lambda so_far: click.echo(f"{so_far.so_far}\n", err=True), time.monotonic() - begin,
    )
    click.echo(str(diagnosis))
    patch = ""
    if diagnosis.cure is not None:
        name, text = (program, "") if is_module else (Path(program).name, Path(program).read_text())
        words = _words(
            program, arguments, is_module=is_module, is_graph=is_graph, tf1=tf1, nanoo=nanoo,
            unconfigured=unconfigured, seed=seed, target=target,
            asks_status=diagnosis.asks_status,
        )
        patch = patch_of(diagnosis.cure, run.way, name, text, words)
        click.echo(patch)
    if out is not None:
        for file, content in (("diagnosis.txt", str(diagnosis)), ("remedy.patch", patch)):
            write_whole(out / file, f"{content}\n".encode())
        write_sheet(out / "index.html", diagnosis, patch, Path(program).name)
    return _status(diagnosis)


def _words(
    program: str, arguments: Sequence[str], *, is_module: bool, is_graph: bool, tf1: bool,
    nanoo: bool, unconfigured: bool, seed: int, target: str | None, asks_status: bool,
) -> tuple[str, str]:
    """What stands before and behind the policy of the command that runs the program."""
    options = {"seed": seed, "target": target, "found_inf": "status" if asks_status else "",
               "tf1": tf1, "nanoo": nanoo, "unconfigured": unconfigured}
    words = [*as_options(options), *(["-m"] if is_module else []), program, *arguments]
    return f"fpsim {'tf' if is_graph else 'torch'}", shlex.join(words)


def _session(way: Way, seed: int, target: str | None, *, nanoo: bool, found_inf: str) -> Run:
    """A run of torch; tensors that the program makes float16 are sites as well.

    In binary32 it is these alone that may hurt, so they stay.
    """
    from ipu.frontends.torch import machine
    from ipu.learn.policy import FP32

    changes = replace(way.changes, halves_by_policy=way.policy != FP32)
    return machine(way.policy, sr=way.sr, seed=seed, count=True, changes=changes, nanoo=nanoo,
                   target=target, found_inf=found_inf)


def _run_of_graphs(
    way: Way, seed: int, target: str | None, *, tf1: bool, unconfigured: bool, found_inf: str
) -> Run:
    """A run of TensorFlow."""
    way.check_for_graphs()
    from ipu.frontends.tensorflow.engine.current import choose, current_run
    from ipu.frontends.tensorflow.engine.machine import Choices
    from ipu.frontends.tensorflow.facade import install_facade

    choose(Choices(policy=way.policy, sr=way.sr, seed=seed, count=True, changes=way.changes,
                   target=target, unconfigured=unconfigured, found_inf=found_inf))
    if tf1:
        install_facade()
    return current_run()


def _check_graph_program(program: str, *, is_module: bool) -> None:
    """Refuse a program of TensorFlow that cannot be started.

    Raises    ValueError.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise ValueError(not_installed("TensorFlow", "tensorflow"))
    check_there(program, is_module=is_module)
    import ipu.frontends.tensorflow  # noqa: F401  installs before TensorFlow is imported


def framework_of(program: str) -> str:
    """The front end of a file, by the first module that it imports of one; torch of others."""
    path = Path(program)
    if path.is_file():
        for name in _imported(path.read_text(encoding="utf-8", errors="replace")):
            if name in _FRONT_ENDS:
                return _FRONT_ENDS[name]
    return "torch"


def _imported(text: str) -> Iterator[str]:
    """The packages that a program imports; none of one that Python cannot read."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except SyntaxError:
        return
    for node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [])
        yield from (name.partition(".")[0] for name in names)


def _status(diagnosis: Diagnosis) -> int:
    return {"healthy": 0, "ill": 3}.get(diagnosis.answer, 4)
