"""Where jobs run: processes of this machine, or the workers of a Dask scheduler by its address.

Dask's messages are cloudpickle: who can reach the scheduler or a worker can run code there. So the
default listens on 127.0.0.1 alone, and a scheduler outside of this machine needs TLS or the user's
word that the network can be trusted.

Source    dask.distributed, "Security" and "Configuration".
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fpsim import get_threads
from ipu.experiments.lab.processes import held_interrupts
from ipu.experiments.sweep.jobs import Version, own_version
from ipu.installation import how_to_install
from ipu.members.cluster import is_loopback

if TYPE_CHECKING:
    from distributed import Client, Security

MISSING = f"a sweep needs Dask, which is not installed; install it with: {how_to_install('dask')}"
TLS = ("FPSIM_TLS_CA", "FPSIM_TLS_CERT", "FPSIM_TLS_KEY")
GUARD = (
    "workers import the program again, so what starts them belongs under if __name__ == '__main__':"
)
#: Seconds in which a scheduler answers, and in which its first worker is there.
ANSWER, FIRST_WORKER = 10.0, 30.0
#: Packages whose versions decide about bits, data or the messages themselves.
PACKAGES = ("python", "dask", "distributed", "cloudpickle", "numpy", "ml_dtypes", "numba", "scipy",
            "scikit-learn")


class ClusterRefusedError(RuntimeError):
    """The scheduler or its workers cannot be used; the text is the user's sentence."""


@dataclass(frozen=True)
class DaskCluster:
    """Where jobs run.

    scheduler        tcp://HOST:PORT or tls://HOST:PORT of a Dask scheduler; "": this machine.
    workers          processes on this machine, one thread each; 0: as many as fpsim has threads.
    retries          times that a job is run again after its worker was lost; None: 2 here, and what
                     the scheduler was started with elsewhere.
    trust_network    a scheduler outside of this machine is allowed without TLS.

    Raises    ValueError for what does not go together, with what to do instead.

    >>> DaskCluster("tcp://10.0.0.5:8786")
    Traceback (most recent call last):
    ...
    ValueError: scheduler='tcp://10.0.0.5:8786' is outside of this machine, and whoever can reach
    it can run code here; use tls:// with FPSIM_TLS_CA, FPSIM_TLS_CERT and FPSIM_TLS_KEY, or
    --trust-network
    """

    scheduler: str = ""
    workers: int = 0
    retries: int | None = None
    trust_network: bool = False

    def __post_init__(self) -> None:
        if not self.scheduler:
            return
        scheme, separator, address = self.scheduler.partition("://")
        if not separator or scheme not in ("tcp", "tls"):
            raise self._no_address()
        try:
            local = is_loopback(address)
        except ValueError:
            raise self._no_address() from None
        if scheme == "tcp" and not local and not self.trust_network:
            raise ValueError(
                f"scheduler={self.scheduler!r} is outside of this machine, and whoever can reach "
                f"it can run code here; use tls:// with {TLS[0]}, {TLS[1]} and {TLS[2]}, or "
                "--trust-network"
            )
        for option, value in (("workers", self.workers or None), ("retries", self.retries)):
            if value is not None:
                raise ValueError(
                    f"{option}={value} is set where the scheduler {self.scheduler} and its workers "
                    "start (retries: distributed.scheduler.allowed-failures); leave it out"
                )

    def _no_address(self) -> ValueError:
        return ValueError(
            f"scheduler={self.scheduler!r} is no address; use tcp://HOST:PORT or tls://HOST:PORT "
            "as the scheduler prints it"
        )

    @property
    def n_tries(self) -> int:
        """Local workers that may end while they run a job, until it counts as failed.

        >>> DaskCluster().n_tries
        3
        """
        return 1 + (2 if self.retries is None else self.retries)

    def check(self) -> None:
        """Raises    ValueError where certificates are needed and missing."""
        _ = self.security

    @property
    def security(self) -> Security | None:
        """Certificates of a scheduler with TLS; None without it.

        Raises    ValueError for a variable that names no file.
        """
        if not self.scheduler.startswith("tls://"):
            return None
        from distributed import Security

        paths = [os.environ.get(name, "") for name in TLS]
        for name, path in zip(TLS, paths, strict=True):
            if not Path(path).is_file():
                shown = f"names no file ({path!r})" if path else "is not set"
                raise ValueError(
                    f"scheduler={self.scheduler!r} needs certificates, and {name} {shown}; set "
                    f"{TLS[0]}, {TLS[1]} and {TLS[2]} to files"
                )
        return Security(tls_ca_file=paths[0], tls_client_cert=paths[1], tls_client_key=paths[2],
                        require_encryption=True)


def cluster_of(cluster: DaskCluster | str | None) -> DaskCluster | None:
    """A cluster from an argument: "local", an address, a DaskCluster, or None for none.

    Raises    ValueError for one that may not be used, or where Dask is not installed; RuntimeError
              in a worker that imports an unguarded program.
    """
    if cluster is None:
        return None
    if getattr(current_process(), "_inheriting", False):  # as multiprocessing itself asks
        raise RuntimeError(GUARD)
    check_installed()
    if isinstance(cluster, str):
        cluster = DaskCluster("" if cluster == "local" else cluster)
    cluster.check()
    return cluster


def check_installed() -> None:
    """Raises    ValueError where Dask is not installed."""
    if importlib.util.find_spec("distributed") is None:
        raise ValueError(MISSING)


@contextmanager
def connected(cluster: DaskCluster, n_jobs: int) -> Iterator[Client]:
    """A client of the scheduler whose workers have this version; local ones end with it.

    Raises    ClusterRefusedError for a scheduler that does not answer or has no worker, and for
              workers of another version.
    """
    check_installed()
    with ExitStack() as stack:
        # Their messages about lost workers and closed connections are said in our words.
        stack.enter_context(_silent_logs())
        if cluster.scheduler:
            client = stack.enter_context(_client(cluster))
        else:
            client = stack.enter_context(_local(cluster, n_jobs))
        check_versions(client)
        yield client


@contextmanager
def _local(cluster: DaskCluster, n_jobs: int) -> Iterator[Client]:
    """Processes of this machine."""
    import dask
    from distributed import Client, LocalCluster

    config = {
        "distributed.scheduler.allowed-failures": cluster.n_tries - 1,
        # One job at a time on each worker: a job that ends its worker takes no other with it.
        "distributed.scheduler.worker-saturation": 1.0,
    }
    n = min(cluster.workers or get_threads(), max(n_jobs, 1))
    with dask.config.set(config), tempfile.TemporaryDirectory(prefix="fpsim-sweep-") as folder:
        with held_interrupts():  # ^C is for this process; its workers end with it
            try:
                local = LocalCluster(
                    n_workers=n, threads_per_worker=1, processes=True, host="127.0.0.1",
                    # Without an address the scheduler takes a port that two sweeps would share.
                    dashboard_address="127.0.0.1:0", memory_limit=0,
                    silence_logs=logging.CRITICAL, local_directory=folder,
                )
            except RuntimeError as error:
                raise ClusterRefusedError(f"the workers did not start ({error}); {GUARD}") from None
        with local, Client(local, set_as_default=False) as client:
            yield client


async def _answers(cluster: DaskCluster) -> None:
    """Greet the scheduler; a client waits forever for one that accepts and says nothing.

    Raises    OSError or TimeoutError.
    """
    from distributed.comm import connect

    security = cluster.security
    secured = {} if security is None else security.get_connection_args("client")
    comm = await asyncio.wait_for(connect(cluster.scheduler, timeout=ANSWER, **secured), ANSWER)
    await comm.close()


@contextmanager
def _client(cluster: DaskCluster) -> Iterator[Client]:
    """A client of the user's scheduler, once it has a worker."""
    from distributed import Client

    try:
        # In a thread of its own: a notebook's has a loop that runs.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(asyncio.run, _answers(cluster)).result()
        client = Client(cluster.scheduler, security=cluster.security, timeout=ANSWER,
                        set_as_default=False)
    except (OSError, TimeoutError) as error:
        reason = (str(error).splitlines() or ["nothing was said"])[0]
        raise ClusterRefusedError(
            f"scheduler {cluster.scheduler} did not answer within {ANSWER:.0f} s ({reason}); "
            "start it with: dask scheduler --host 127.0.0.1"
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=FIRST_WORKER)
        except TimeoutError:
            raise ClusterRefusedError(
                f"scheduler {cluster.scheduler} has no worker after {FIRST_WORKER:.0f} s; start "
                f"one with: dask worker {cluster.scheduler} --nthreads 1"
            ) from None
        yield client


@contextmanager
def _silent_logs() -> Iterator[None]:
    logger = logging.getLogger("distributed")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


# Versions ----------------------------------------------------------------------------------------


def check_versions(client: Client) -> None:
    """Refuse workers of another version, as their bits could differ.

    Raises    ClusterRefusedError that names the worker and both versions.
    """
    versions = client.get_versions(packages=list(PACKAGES))
    here: dict[str, Any] = versions["client"]["packages"]
    for address, there in versions["workers"].items():
        for package in PACKAGES:
            if there["packages"].get(package) != here.get(package):
                raise ClusterRefusedError(
                    f"worker {address} has {package} {there['packages'].get(package)}, this "
                    f"process {here.get(package)}; install one version on both"
                )
    try:
        by_address = client.run(own_version)
    except (ImportError, AttributeError) as error:
        raise ClusterRefusedError(
            f"the workers cannot import fpsim as here ({error}); install one version on both"
        ) from None
    for address, version in by_address.items():
        if Version(*version) != own_version():
            raise ClusterRefusedError(
                f"worker {address} runs {Version(*version)}, this process {own_version()}; "
                "install one version on both"
            )
