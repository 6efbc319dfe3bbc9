"""`fpsim poprun PROGRAM ARGS`: a program in several processes that share the replicas of a run.

Source    Graphcore, PopDist and PopRun user guide: names of options; how processes are started,
          `ipu.frontends.popdist.launch`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click

from ipu.experiments.commands.options import bad_input

__all__ = ["command"]

_SERVER = "no V-IPU server deals simulated IPUs"
#: The vendor's options that the simulation has no use for, and why.
_WITHOUT_EFFECT = {
    "numa-aware": "the system places the processes",
    "num-ilds": "links between IPUs are not simulated by domains",
    "vipu-server-host": _SERVER, "vipu-server-port": _SERVER, "vipu-server-timeout": _SERVER,
    "vipu-partition": _SERVER, "vipu-cluster": _SERVER, "vipu-allocation": _SERVER,
    "update-partition": _SERVER, "reset-partition": _SERVER, "remove-partition": _SERVER,
    "executable-cache-path": "no executables of Poplar are built",
    "print-topology": "hosts and IPUs have no topology here",
    "offline-mode": "simulated IPUs are never attached",
}
#: Options that a transport without mpirun does not need.
_OF_MPI = ("host", "mpi_global_args", "mpi_local_args", "allow_run_as_root")


def _vendors_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options that are accepted and say so."""
    for name in _WITHOUT_EFFECT:
        function = click.option(f"--{name}", hidden=True)(function)
    return function


@click.command(
    "poprun", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False}
)
@click.option("--num-instances", type=int, default=1, show_default=True, help="Processes.")
@click.option("--num-replicas", type=int, default=1, show_default=True,
              help="Replicas of all processes, a multiple of them.")
@click.option("--ipus-per-replica", type=int, default=1, show_default=True)
@click.option("-H", "--host", metavar="A,B", help="Computers, for mpi; this one else.")
@click.option("--mpi-global-args", default="", help="Further arguments of mpirun.")
@click.option("--mpi-local-args", default="", help="The same, of each instance.")
@click.option("--timeout", type=float, metavar="SECONDS",
              help="Until all processes must have answered.")
@click.option("--transport", metavar="local|grpc|mpi",
              help="How processes exchange values  [default: local for one, else mpi]")
@click.option("--order", help="Of additions over replicas  [default: the program's]")
@click.option("--allow-run-as-root", is_flag=True, help="Open MPI refuses root without it.")
@click.option("--only-output-from-instance", type=int, metavar="I",
              help="Hides the lines of the others, their errors too.")
@_vendors_options
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED,
                metavar="PROGRAM ARGS...")
def command(program: tuple[str, ...], only_output_from_instance: int | None, **choices: Any) -> int:
    """Run PROGRAM ARGS... in several processes that share the replicas of a run.

    PROGRAM is a command, or a .py file for this Python; `import popdist` works in it. Lines of
    instance i begin with [i]. The first status that is not 0 is poprun's; ^C ends all processes.
    gRPC starts processes on this computer; MPI trusts its network and does not encrypt.
    """
    from ipu.frontends.popdist.launch import PoprunOptions, free_ports
    from ipu.frontends.popdist.processes import run

    arguments = choices["mpi_global_args"], choices["mpi_local_args"]
    with bad_input():
        launch = PoprunOptions(
            instances=choices["num_instances"], replicas=choices["num_replicas"],
            ipus_per_replica=choices["ipus_per_replica"], transport=choices["transport"],
            order=choices["order"], timeout=choices["timeout"], hosts=choices["host"],
            as_root=choices["allow_run_as_root"],
            mpi_arguments=tuple(word for text in arguments for word in shlex.split(text)),
        )
        _check_shown(only_output_from_instance, launch.instances)
        if launch.transport == "mpi":
            launch.mpirun(list(program))
        elif launch.transport == "grpc":
            free_ports(launch.instances)
    _say_what_has_no_effect(choices, launch.transport)
    return run(launch, list(program), only_output_from_instance)


def _check_shown(instance: int | None, instances: int) -> None:
    if instance is not None and not 0 <= instance < instances:
        raise ValueError(
            f"--only-output-from-instance {instance}: use 0 to {instances - 1}, numbers of "
            "instances"
        )


def _say_what_has_no_effect(choices: dict[str, Any], transport: str | None) -> None:
    for name, why in _WITHOUT_EFFECT.items():
        if choices[name.replace("-", "_")] is not None:
            click.echo(f"poprun: --{name} is accepted and has no effect here: {why}", err=True)
    for name in _OF_MPI:
        if transport != "mpi" and choices[name]:
            click.echo(
                f"poprun: --{name.replace('_', '-')} is accepted and has no effect with "
                f"--transport {transport}: processes start on this computer",
                err=True,
            )
