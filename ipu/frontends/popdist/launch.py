"""A launch: how many instances, replicas and IPUs, and how their processes are started.

| transport | processes are started by | they exchange values by |
|---|---|---|
| local | poprun, one alone | - |
| grpc | poprun, on this computer, with ports that the system chooses | gRPC |
| mpi | mpirun, on any computers | MPI |

Instances are numbered from 0; instance i has the replicas i·L … i·L + L - 1, L = R / P.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from ipu.installation import how_to_install

__all__ = ["PoprunOptions", "TRANSPORTS", "find_mpirun", "free_ports"]

TRANSPORTS = ("local", "grpc", "mpi")
#: Seconds that workers wait for each other where nothing else is said.
JOIN_TIMEOUT = 60.0
#: Where our `popdist` lies for programs that poprun starts.
_PATH = Path(__file__).parent / "path"


@dataclass(frozen=True)
class PoprunOptions:
    """What poprun is asked for.

    transport    None: local for one instance, else mpi, as the vendor's.
    order        of the additions over replicas; None: the program's default.
    timeout      seconds until all processes must have answered; None: the transport's own.
    hosts        computers for mpi; with numbers of slots, as "a:2,b:2".

    >>> launch = PoprunOptions(instances=2, replicas=4, transport="grpc")
    >>> launch.environment["POPDIST_NUM_LOCAL_REPLICAS"]
    '2'
    """

    instances: int = 1
    replicas: int = 1
    ipus_per_replica: int = 1
    transport: str | None = None
    order: str | None = None
    timeout: float | None = None
    hosts: str | None = None
    as_root: bool = False
    mpi_arguments: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("instances", "replicas", "ipus_per_replica"):
            if getattr(self, name) < 1:
                raise ValueError(f"{_option(name)} {getattr(self, name)}: use 1 or more")
        if self.replicas % self.instances:
            raise ValueError(
                f"--num-replicas {self.replicas} cannot be dealt to --num-instances "
                f"{self.instances} equally; use a multiple of {self.instances}"
            )
        if self.timeout is not None and not 0 < self.timeout < 1e6:
            raise ValueError(f"--timeout {self.timeout:g}: use seconds above 0, below a million")
        if self.order is not None:
            # Loads the arithmetic, which a launcher has no other use for: only where it is needed.
            from ipu.plan.orders import check_order

            check_order(self.order, self.replicas)
        if self.transport is None:
            object.__setattr__(self, "transport", "local" if self.instances == 1 else "mpi")
        if self.transport not in TRANSPORTS:
            raise ValueError(f"--transport {self.transport}: use one of {', '.join(TRANSPORTS)}")
        if self.transport == "local" and self.instances > 1:
            raise ValueError(
                f"--transport local has one process, not --num-instances {self.instances}; use "
                "--transport grpc or mpi"
            )

    @property
    def environment(self) -> dict[str, str]:
        """What every instance is told, whichever it is."""
        assert self.transport is not None
        settings = {
            "POPDIST_NUM_TOTAL_REPLICAS": str(self.replicas),
            "POPDIST_NUM_LOCAL_REPLICAS": str(self.replicas // self.instances),
            "POPDIST_NUM_INSTANCES": str(self.instances),
            "POPDIST_NUM_IPUS_PER_REPLICA": str(self.ipus_per_replica),
            "FPSIM_TRANSPORT": self.transport,
            "PYTHONPATH": os.pathsep.join(_python_path()),
        }
        if self.order is not None:
            settings["FPSIM_ORDER"] = self.order
        if self.timeout is not None:
            settings["FPSIM_JOIN_TIMEOUT"] = str(self.timeout)
        return settings

    @property
    def join_timeout(self) -> float:
        """Seconds that an instance waits for the others; what is no number workers refuse."""
        if self.timeout is not None:
            return self.timeout
        with suppress(ValueError):
            return float(os.environ.get("FPSIM_JOIN_TIMEOUT", JOIN_TIMEOUT))
        return JOIN_TIMEOUT

    def command(self, program: list[str]) -> list[str]:
        """The command line of one instance."""
        return [sys.executable, "-P", "-m", "ipu.frontends.popdist.instance", *_expanded(program)]

    def mpirun(self, program: list[str]) -> list[str]:
        """The command line that starts all instances by MPI.

        Raises    ValueError where no mpirun is installed.
        """
        mpirun = find_mpirun()
        is_open = "Open MPI" in _version(mpirun)
        line = [mpirun, *self.mpi_arguments, "-np", str(self.instances)]
        if self.hosts:
            line += ["-H" if is_open else "-hosts", self.hosts]
        if is_open:
            line += ["--oversubscribe"]
            line += ["--allow-run-as-root"] if self.as_root else []
            # MPICH sends the whole environment, Open MPI what it is told to.
            line += [word for name in self.environment for word in ("-x", name)]
        return line + self.command(program)


def _option(name: str) -> str:
    return "--ipus-per-replica" if name == "ipus_per_replica" else f"--num-{name}"


def _expanded(program: list[str]) -> list[str]:
    """A file of Python is run by this Python, and fpsim is this fpsim."""
    if program[0].endswith(".py"):
        return [sys.executable, *program]
    if program[0] == "fpsim":
        return [sys.executable, "-P", "-m", "ipu.experiments.cli", *program[1:]]
    return program


def _python_path() -> list[str]:
    """PYTHONPATH of programs: theirs, where this fpsim lies, and our popdist if there is no other.

    Ours comes last, so that a program's own module of that name is not hidden.
    """
    root = str(Path(__file__).parents[3])
    ours = [root] if find_spec("popdist") else [root, str(_PATH)]
    return [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *ours]


def find_mpirun() -> str:
    """The mpirun of this Python's environment, else that of the path.

    Raises    ValueError where none is installed.
    """
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        raise ValueError(
            "--transport mpi needs mpirun and none is installed; install Open MPI with your "
            f"system's package manager, or: {how_to_install('mpi')}, or use --transport grpc"
        )
    return mpirun


def _version(mpirun: str) -> str:
    done = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    return done.stdout


#: Numbers of ports of a computer.
_PORTS = 65535


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free, and stay so until the instances listen on them.

    The system chooses them. It gives a port that is merely closed to any process that asks for
    one, as the own port of a connection too. A port with a connection that has just ended it
    gives to nobody for a minute, except by its number with SO_REUSEADDR, as servers ask for it.

    Raises    ValueError where the system has fewer.

    Source    RFC 9293 §3.3.2, TIME-WAIT.
    """
    with ExitStack() as stack:
        try:
            if count > _PORTS:
                raise OSError(errno.EADDRNOTAVAIL, f"{_PORTS} ports")
            listeners = [_listener(stack) for _ in range(count)]
            # Only now: what waits blocks its port for a minute, also when there are too few.
            for listener in listeners:
                _keep(listener)
        except OSError as error:
            raise ValueError(
                f"--num-instances {count}: this computer has no port for each "
                f"({error.strerror}); use fewer"
            ) from None
        return [int(listener.getsockname()[1]) for listener in listeners]


def _listener(stack: ExitStack) -> socket.socket:
    listener = stack.enter_context(socket.socket())
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", 0))
    return listener


def _keep(listener: socket.socket) -> None:
    """Keep the port of a listener: its end of a connection closes first, and waits."""
    listener.listen(1)
    with socket.create_connection(listener.getsockname()):
        listener.accept()[0].close()
