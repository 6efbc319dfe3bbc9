"""Which clusters may be used (golden), with real schedulers on loopback where one is named."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from ipu.experiments.sweep import cluster as module
from ipu.experiments.sweep.cluster import (
    TLS,
    ClusterRefusedError,
    DaskCluster,
    cluster_of,
    connected,
)
from ipu.experiments.sweep.jobs import own_version
from tests.experiments.sweep import room

distributed = pytest.importorskip(
    "distributed", reason="needs the extra dask; run: make test-distributed"
)

ROOT = Path(__file__).parents[3]


@contextmanager
def scheduler(**more):
    """The address of somebody's scheduler with a worker."""
    options = {"threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None} | more
    with room.on_the_workers(), distributed.LocalCluster(1, **options) as local:
        yield local.scheduler_address


@pytest.mark.parametrize("address", ["127.0.0.1:8786", "udp://127.0.0.1:1", "tcp:/127.0.0.1:1",
                                     "scheduler", "://"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(ValueError, match=r"^scheduler='.*' is no address; use tcp://HOST:PORT"):
        DaskCluster(address)


@pytest.mark.parametrize("address", ["tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "tls://:1"])
def test_an_address_has_host_and_port(address):
    with pytest.raises(ValueError, match=r"^scheduler='.*' is no address; use tcp://HOST:PORT"):
        DaskCluster(address)


@pytest.mark.parametrize(
    "address", ["tcp://10.0.0.5:8786", "tcp://node7:8786", "tcp://[fe80::1]:1"]
)
def test_outside_of_this_machine_the_network_is_named_or_tls_used(address, monkeypatch):
    with pytest.raises(ValueError, match=r"is outside of this machine, .* or --trust-network$"):
        DaskCluster(address)
    assert DaskCluster(address, trust_network=True).security is None
    for name in TLS:
        monkeypatch.delenv(name, raising=False)
    secure = DaskCluster(address.replace("tcp", "tls"))
    with pytest.raises(ValueError, match=r"needs certificates, and FPSIM_TLS_CA is not set; set"):
        secure.check()


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "tcp://[::1]:8786",
                                     "tcp://localhost:8786", "tcp://127.3.2.1:1"])
def test_loopback_is_allowed(address):
    DaskCluster(address).check()


def test_a_certificate_that_is_no_file_is_named(monkeypatch, tmp_path):
    for name in TLS:
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / TLS[0]).touch()
    with pytest.raises(ValueError, match=r"FPSIM_TLS_CERT names no file \('.*FPSIM_TLS_CERT'\)"):
        DaskCluster("tls://10.0.0.5:8786").check()


@pytest.mark.parametrize("option", [{"workers": 2}, {"retries": 0}, {"retries": 2}])
def test_options_of_local_workers_are_refused_with_a_scheduler(option):
    with pytest.raises(ValueError, match=r"^(workers|retries)=\d is set where the scheduler"):
        DaskCluster("tcp://127.0.0.1:8786", **option)


def test_clusters_from_arguments():
    assert cluster_of(None) is None
    assert cluster_of("local") == DaskCluster()
    assert cluster_of("tcp://127.0.0.1:1") == DaskCluster("tcp://127.0.0.1:1")
    assert cluster_of(DaskCluster(workers=3)) == DaskCluster(workers=3)


def test_without_dask_one_sentence_names_the_extra(monkeypatch):
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r'install it with: pip install "distributed>=[^ ]*"$'):
        cluster_of("local")


def test_a_port_that_accepts_and_says_nothing_is_no_scheduler(monkeypatch):
    """A client of Dask waits for it without end."""
    monkeypatch.setattr(module, "ANSWER", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with (
            pytest.raises(ClusterRefusedError, match=r"answer within 1 s \(nothing was said\)"),
            connected(DaskCluster(address), 1),
        ):
            pass


def test_a_scheduler_that_is_not_there(monkeypatch):
    monkeypatch.setattr(module, "ANSWER", 1.0)
    with socket.socket() as taken:  # bound and not listening: connections are refused
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with (
            pytest.raises(ClusterRefusedError, match=r"^scheduler tcp://\S+ did not answer within"),
            connected(DaskCluster(address), 1),
        ):
            pass


def test_a_scheduler_without_workers(monkeypatch):
    monkeypatch.setattr(module, "FIRST_WORKER", 0.5)
    options = {"host": "127.0.0.1", "dashboard": False}
    spec = {"cls": distributed.Scheduler, "options": options}
    with (
        distributed.SpecCluster(workers={}, scheduler=spec) as alone,
        pytest.raises(ClusterRefusedError, match=r"has no worker after .* dask worker tcp://"),
        connected(DaskCluster(alone.scheduler_address), 1),
    ):
        pass


def test_workers_of_another_version_are_refused(moody):
    moody()
    with (
        scheduler(env={room.VERSION: "9.9"}) as address,
        pytest.raises(ClusterRefusedError, match=r"^worker tcp://\S+ runs fpsim 9\.9 ") as error,
        connected(DaskCluster(address), 1),
    ):
        pass
    assert f"this process {own_version()}; install one version on both" in str(error.value)


def test_packages_of_another_version_are_refused():
    class Client:
        """Its worker has an older numpy."""

        def get_versions(self, packages):
            here = dict.fromkeys(packages, "2.0")
            there = {"packages": here | {"numpy": "1.9"}}
            return {"client": {"packages": here}, "workers": {"tcp://10.0.0.7:1": there}}

    with pytest.raises(ClusterRefusedError, match=(
        r"^worker tcp://10.0.0.7:1 has numpy 1.9, this process 2.0; install one version on both$"
    )):
        module.check_versions(Client())


@pytest.mark.tier("full")
def test_tls_lets_in_who_has_the_key_alone(monkeypatch, tmp_path, moody):
    """Another authority's key and plain text are refused."""
    moody()
    monkeypatch.setattr(module, "ANSWER", 3.0)
    ours, other = (distributed.Security.temporary() for _ in range(2))
    with scheduler(security=ours, protocol="tls://") as address:
        use(monkeypatch, ours, tmp_path)
        with connected(DaskCluster(address), 1) as client:
            assert client.submit(abs, -3).result() == 3
        use(monkeypatch, other, tmp_path)
        for refused in (address, address.replace("tls", "tcp")):
            with (
                pytest.raises(ClusterRefusedError, match="did not answer within"),
                connected(DaskCluster(refused), 1),
            ):
                pass


def use(monkeypatch, security, folder):
    """The files of these keys, in the environment."""
    texts = (security.tls_ca_file, security.tls_client_cert, security.tls_client_key)
    for name, text in zip(TLS, texts, strict=True):
        (folder / name).write_text(text)
        monkeypatch.setenv(name, str(folder / name))


UNGUARDED = """
from ipu.experiments.sweep.cluster import cluster_of, connected
with connected(cluster_of("local"), 1):
    pass
"""


@pytest.mark.tier("full")
def test_a_program_without_a_guard_is_told_what_to_do(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, str(program)], env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True,
        capture_output=True, timeout=120, check=False,
    )
    assert done.returncode == 1
    assert f"RuntimeError: {module.GUARD}" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ipu.experiments.sweep.cluster.ClusterRefusedError: the workers did not")
    assert last.endswith(module.GUARD)
