"""Cluster: the workers of a training, their addresses and limits, as the environment gives them.

TF_CONFIG is read as TensorFlow documents it; without it the variables that `fpsim poprun` sets.

| variable | |
|---|---|
| TF_CONFIG | JSON with the cluster's addresses and this worker's task |
| POPDIST_NUM_INSTANCES, POPDIST_INSTANCE_INDEX | P, and which of them this one is |
| POPDIST_NUM_TOTAL_REPLICAS, POPDIST_NUM_LOCAL_REPLICAS | R, and R/P |
| POPDIST_REPLICA_INDEX_OFFSET | the first replica of this process |
| FPSIM_TRANSPORT | grpc (default), mpi or local |
| FPSIM_WORKERS | host:port of each worker, separated by commas, for grpc |
| FPSIM_ORDER | order of the sum over replicas |
| FPSIM_JOIN_TIMEOUT, FPSIM_SILENCE | seconds (60 and 10) |
| FPSIM_TLS_CA, FPSIM_TLS_CERT, FPSIM_TLS_KEY | files of mutual TLS |
| FPSIM_TRUST_NETWORK | 1: addresses outside of this machine without TLS |

Source    TensorFlow, tf.distribute.cluster_resolver.TFConfigClusterResolver; PopDist's names.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ipu.plan.orders import Order

__all__ = ["Cluster", "ClusterError", "Tls"]

TRANSPORTS = ("grpc", "mpi", "local")

EXAMPLE = (
    'for instance TF_CONFIG=\'{"cluster": {"worker": ["127.0.0.1:3737", "127.0.0.1:3738"]}, '
    '"task": {"type": "worker", "index": 0}}\''
)

#: What a program is told whose cluster has some.
PARAMETER_SERVERS = (
    "TF_CONFIG lists parameter servers, which take no part: workers sum gradients in a ring, and "
    "the first one holds the initial values"
)

_POPDIST = "POPDIST_NUM_INSTANCES"
_NUMBER, _PORT = re.compile("[0-9]{1,18}"), re.compile("[0-9]{1,5}")
#: A name (also in other alphabets) or a number, with the zone of an IPv6 address.
_HOST = re.compile(r"[\w.:%-]+")


class ClusterError(ValueError):
    """The environment describes no cluster: exit status 2."""


@dataclass(frozen=True)
class Tls:
    """Files of mutual TLS: the authority, and this worker's certificate and key."""

    ca: Path
    cert: Path
    key: Path = field(repr=False)


@dataclass(frozen=True)
class Cluster:
    """The workers of a training.

    rank, size       this worker, and how many there are (P).
    replicas         R; each worker computes R/P consecutive ones.
    addresses        host:port of each worker; empty where the transport needs none.
    transport        grpc, mpi or local.
    order            of the sum over replicas; None: the program's default.
    join_timeout     seconds until all workers must have answered.
    silence, beat    seconds without a sign of life after which a worker is given up, and between
                     signs of life.
    tls              files of mutual TLS.
    trust_network    addresses outside of this machine are allowed without TLS.

    >>> cluster = Cluster(rank=1, size=2, replicas=4)
    >>> cluster.local_replicas, list(cluster.own_replicas)
    (2, [2, 3])
    """

    rank: int = 0
    size: int = 1
    replicas: int = 1
    addresses: tuple[str, ...] = ()
    transport: str = "local"
    order: Order | None = None
    join_timeout: float = 60.0
    silence: float = 10.0
    beat: float = 1.0
    tls: Tls | None = None
    trust_network: bool = False

    def __post_init__(self) -> None:
        if self.transport not in TRANSPORTS:
            raise ClusterError(
                f"transport={self.transport!r} is not a transport; use one of "
                f"{', '.join(TRANSPORTS)}"
            )
        if self.size < 1 or not 0 <= self.rank < self.size:
            raise ClusterError(
                f"rank={self.rank} of size={self.size} workers; use ranks 0 … size - 1"
            )
        if self.replicas < 1 or self.replicas % self.size:
            raise ClusterError(
                f"replicas={self.replicas} is no multiple of the {self.size} workers; "
                f"use {max(self.replicas // self.size, 1) * self.size}"
            )
        if self.transport == "grpc":
            self._check_addresses()

    def _check_addresses(self) -> None:
        if len(self.addresses) != self.size:
            raise ClusterError(
                f"{len(self.addresses)} addresses for {self.size} workers; give host:port for each"
            )
        for address in self.addresses:
            if not (is_loopback(address) or self.tls or self.trust_network):
                raise ClusterError(
                    f"address {address!r} is outside of this machine, and anybody on the network "
                    "could take part; set FPSIM_TLS_CA, FPSIM_TLS_CERT and FPSIM_TLS_KEY, or "
                    "FPSIM_TRUST_NETWORK=1 (--trust-network)"
                )

    @property
    def local_replicas(self) -> int:
        """Replicas of each worker, L = R/P."""
        return self.replicas // self.size

    @property
    def own_replicas(self) -> range:
        """The replicas of this worker."""
        return range(self.rank * self.local_replicas, (self.rank + 1) * self.local_replicas)

    def owner(self, replica: int) -> int:
        """The worker of a replica."""
        return replica // self.local_replicas

    def with_replicas(self, replicas: int) -> Cluster:
        """The same workers with another number of replicas."""
        return replace(self, replicas=replicas)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Cluster | None:
        """The cluster that the environment describes; None where it describes none.

        Raises    ClusterError that names the variable or key, with an example.

        >>> Cluster.from_environment({}) is None
        True
        """
        environment = os.environ if environment is None else environment
        if environment.get("TF_CONFIG"):
            return _from_tf_config(environment)
        if environment.get(_POPDIST):
            return _from_popdist(environment)
        return None


# Addresses --------------------------------------------------------------------------------------


def split_address(address: object) -> tuple[str, int]:
    """Host and port.

    Raises    ClusterError for anything else.

    >>> split_address("[::1]:3737")
    ('::1', 3737)
    """
    host, colon, port = str(address).rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    # At most five digits: the longest texts of digits are no numbers to Python.
    well_formed = isinstance(address, str) and colon and _PORT.fullmatch(port)
    is_host = _HOST.fullmatch(bare) and (":" in bare) == bracketed
    if not well_formed or not is_host or not 0 < int(port) < 1 << 16:
        raise ClusterError(f"address {address!r} is not host:port; {EXAMPLE}")
    return bare, int(port)


def _check_listed(variable: str, addresses: Sequence[object]) -> None:
    """Raise ClusterError for an address that is malformed or doubled."""
    for address in addresses:
        split_address(address)
        if addresses.count(address) > 1:
            raise ClusterError(f"{variable} has the address {address!r} more than once; {EXAMPLE}")


def is_loopback(address: str) -> bool:
    """Whether an address is of this machine: 127.0.0.0/8, ::1 or localhost."""
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# TF_CONFIG --------------------------------------------------------------------------------------


def _from_tf_config(environment: Mapping[str, str]) -> Cluster:
    config = _json(environment["TF_CONFIG"])
    addresses, n_chiefs = _tf_addresses(config.get("cluster"))
    rank = _tf_rank(config.get("task"), n_chiefs, len(addresses) - n_chiefs)
    order = _order(environment)
    per_worker = _number(environment, "POPDIST_NUM_LOCAL_REPLICAS", 1)
    return Cluster(
        rank, len(addresses), per_worker * len(addresses), addresses, "grpc", order,
        **_limits(environment),
    )


def _json(text: str) -> dict[str, Any]:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ClusterError(f"TF_CONFIG is no JSON ({error}); {EXAMPLE}") from None
    if not isinstance(config, dict):
        raise ClusterError(f"TF_CONFIG is no JSON object; {EXAMPLE}")
    return config


def _tf_addresses(cluster: object) -> tuple[tuple[str, ...], int]:
    """Addresses of all workers, the chief first, and the number of chiefs."""
    if not isinstance(cluster, dict):
        raise ClusterError(f"TF_CONFIG has no key 'cluster' with an object; {EXAMPLE}")
    for kind in cluster:
        if kind not in ("worker", "chief", "ps"):
            raise ClusterError(
                f"TF_CONFIG has the key {kind!r} in 'cluster'; there are no evaluators here, only "
                f"worker, chief and ps; {EXAMPLE}"
            )
    lists = [cluster.get(kind, []) for kind in ("chief", "worker", "ps")]
    if "worker" not in cluster or not all(isinstance(row, list) for row in lists) or not lists[1]:
        raise ClusterError(f"TF_CONFIG has no list 'worker' in 'cluster'; {EXAMPLE}")
    if len(lists[0]) > 1:
        raise ClusterError(f"TF_CONFIG has {len(lists[0])} chiefs; use one, or none")
    addresses = (*lists[0], *lists[1])
    _check_listed("TF_CONFIG", (*addresses, *lists[2]))
    if lists[2]:
        warnings.warn(PARAMETER_SERVERS, RuntimeWarning, stacklevel=2)
    return addresses, len(lists[0])


def _tf_rank(task: object, n_chiefs: int, n_workers: int) -> int:
    if not isinstance(task, dict):
        raise ClusterError(f"TF_CONFIG has no key 'task' with an object; {EXAMPLE}")
    kind, index = task.get("type"), task.get("index")
    if kind == "ps":
        raise ClusterError(
            "TF_CONFIG has task type 'ps'; a parameter server has nothing to do here, as workers "
            "sum gradients in a ring; start the workers alone"
        )
    if kind not in ("worker", "chief"):
        raise ClusterError(
            f"TF_CONFIG has task type {kind!r}; use 'worker', or 'chief' of a cluster with one; "
            f"{EXAMPLE}"
        )
    most = n_chiefs if kind == "chief" else n_workers
    # A launcher may write the index as text.
    number = int(index) if isinstance(index, str) and _NUMBER.fullmatch(index) else index
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < most:
        allowed = f"0 … {most - 1}" if most else f"no {kind}, as 'cluster' has none"
        raise ClusterError(f"TF_CONFIG has task index {index!r}; use {allowed}; {EXAMPLE}")
    return number if kind == "chief" else n_chiefs + number


# Variables of poprun ------------------------------------------------------------------------------


def _from_popdist(environment: Mapping[str, str]) -> Cluster:
    size = _number(environment, _POPDIST)
    rank = _number(environment, "POPDIST_INSTANCE_INDEX")
    replicas = _number(environment, "POPDIST_NUM_TOTAL_REPLICAS", size)
    transport = environment.get("FPSIM_TRANSPORT", "grpc")
    workers = environment.get("FPSIM_WORKERS", "")
    addresses = tuple(filter(None, (a.strip() for a in workers.split(","))))
    _check_listed("FPSIM_WORKERS", addresses)
    cluster = Cluster(
        rank, size, replicas, addresses, transport, _order(environment), **_limits(environment)
    )
    expected = {
        "POPDIST_NUM_LOCAL_REPLICAS": cluster.local_replicas,
        "POPDIST_REPLICA_INDEX_OFFSET": cluster.own_replicas.start,
    }
    for name, number in expected.items():
        there = _number(environment, name, number)
        if there != number:
            raise ClusterError(
                f"{name}={there}, but process {rank} of {size} with {replicas} replicas has "
                f"{number}; start the program with fpsim poprun"
            )
    return cluster


def _number(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    if text is None or not _NUMBER.fullmatch(text):
        raise ClusterError(
            f"{name}={text!r} is not a number; start the program with fpsim poprun, which sets it"
        )
    return int(text)


def _order(environment: Mapping[str, str]) -> Order | None:
    name = environment.get("FPSIM_ORDER")
    try:
        return Order.parse(name) if name else None
    except ValueError as error:
        raise ClusterError(f"FPSIM_ORDER: {error}") from None


def _limits(environment: Mapping[str, str]) -> dict[str, Any]:
    limits: dict[str, Any] = {"tls": _tls(environment)}
    for name, variable in (("join_timeout", "FPSIM_JOIN_TIMEOUT"), ("silence", "FPSIM_SILENCE")):
        text = environment.get(variable)
        if text is not None:
            limits[name] = _seconds(variable, text)
    if "silence" in limits:
        limits["beat"] = min(1.0, limits["silence"] / 4)
    limits["trust_network"] = environment.get("FPSIM_TRUST_NETWORK") == "1"
    return limits


def _seconds(variable: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise ClusterError(f"{variable}={text!r} is not a number of seconds above 0")
    return seconds


def _tls(environment: Mapping[str, str]) -> Tls | None:
    names = ("FPSIM_TLS_CA", "FPSIM_TLS_CERT", "FPSIM_TLS_KEY")
    paths = [environment.get(name) for name in names]
    if not any(paths):
        return None
    for name, path in zip(names, paths, strict=True):
        if not path or not Path(path).is_file():
            shown = "is not set" if not path else "names no file that can be read"
            raise ClusterError(f"{name} {shown}; mutual TLS needs {', '.join(names)}")
    return Tls(*(Path(path) for path in paths if path))
