"""Clusters from the environment (golden: the documents' example; law: bad input names its key)."""

from __future__ import annotations

import json

import pytest

from ipu.members.cluster import Cluster, ClusterError, is_loopback
from ipu.plan.orders import Order

TWO = ["127.0.0.1:3737", "127.0.0.1:3738"]


def tf_config(cluster=None, task=None):
    cluster = {"worker": TWO} if cluster is None else cluster
    task = {"type": "worker", "index": 0} if task is None else task
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def popdist(**others):
    return {
        "POPDIST_NUM_INSTANCES": "2", "POPDIST_INSTANCE_INDEX": "1",
        "POPDIST_NUM_TOTAL_REPLICAS": "4", "POPDIST_NUM_LOCAL_REPLICAS": "2",
        "POPDIST_REPLICA_INDEX_OFFSET": "2", "FPSIM_WORKERS": ", ".join(TWO),
    } | others


def test_the_example_of_the_document():
    cluster = Cluster.from_environment(tf_config(task={"type": "worker", "index": 1}))
    assert cluster == Cluster(1, 2, 2, tuple(TWO), "grpc")
    assert (cluster.local_replicas, cluster.owner(1)) == (1, 1)


@pytest.mark.source("S1-12")
def test_a_cluster_with_parameter_servers_resolves_and_says_that_they_take_no_part():
    both = {"worker": TWO, "ps": ["127.0.0.1:1", "127.0.0.1:2"]}
    with pytest.warns(RuntimeWarning, match="parameter servers, which take no part"):
        cluster = Cluster.from_environment(tf_config(both, {"type": "worker", "index": 1}))
    assert (cluster.rank, cluster.size, cluster.addresses) == (1, 2, tuple(TWO))


def test_a_chief_comes_before_the_workers():
    both = {"worker": TWO, "chief": ["localhost:1"]}
    ranks = [
        Cluster.from_environment(tf_config(both, {"type": kind, "index": index})).rank
        for kind, index in (("chief", 0), ("worker", 0), ("worker", "1"))
    ]
    assert ranks == [0, 1, 2]


def test_an_environment_without_a_cluster():
    assert Cluster.from_environment({"TF_CONFIG": ""}) is None


def test_variables_of_poprun():
    cluster = Cluster.from_environment(popdist(FPSIM_ORDER="tree", FPSIM_SILENCE="2"))
    assert list(cluster.own_replicas) == [2, 3]
    assert cluster.addresses == tuple(TWO)
    assert cluster.order is Order.TREE
    assert (cluster.silence, cluster.beat) == (2.0, 0.5)
    other = Cluster.from_environment(popdist(FPSIM_TRANSPORT="mpi", FPSIM_WORKERS=""))
    assert other.transport == "mpi"
    assert other.addresses == ()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "TF_CONFIG is no JSON"),
        ("[]", "TF_CONFIG is no JSON object"),
        ("{}", "TF_CONFIG has no key 'cluster'"),
        ("[" * 60_000, "TF_CONFIG is no JSON .maximum recursion depth"),
    ],
)
def test_bad_json(text, sentence):
    with pytest.raises(ClusterError, match=sentence) as error:
        Cluster.from_environment({"TF_CONFIG": text})
    assert "127.0.0.1:3738" in str(error.value)


@pytest.mark.parametrize(
    ("cluster", "task", "sentence"),
    [
        ({}, None, "no list 'worker' in 'cluster'"),
        ({"worker": []}, None, "no list 'worker' in 'cluster'"),
        ({"worker": "a:1"}, None, "no list 'worker' in 'cluster'"),
        ({"worker": TWO, "evaluator": ["a:1"]}, None, "the key 'evaluator' in 'cluster'; there"),
        ({"worker": TWO, "ps": "a:1"}, None, "no list 'worker' in 'cluster'"),
        ({"worker": TWO, "ps": ["a"]}, None, "address 'a' is not host:port"),
        ({"worker": TWO, "ps": [TWO[0]]}, None, "more than once"),
        (None, {"type": "ps", "index": 0}, "task type 'ps'; a parameter server has nothing to do"),
        ({"worker": ["127.0.0.1"]}, None, "address '127.0.0.1' is not host:port"),
        ({"worker": ["127.0.0.1:0"]}, None, "address '127.0.0.1:0' is not host:port"),
        ({"worker": ["127.0.0.1:65536"]}, None, "is not host:port"),
        ({"worker": ["::1:80"]}, None, "is not host:port"),
        ({"worker": ["127.0.0.1:" + "9" * 5000]}, None, "is not host:port"),
        ({"worker": [" 127.0.0.1:80"]}, None, "address ' 127.0.0.1:80' is not host:port"),
        ({"worker": ["a\0b:80"]}, None, "is not host:port"),
        ({"worker": ["\ud800:80"]}, None, "is not host:port"),
        (None, {"type": "worker", "index": "9" * 5000}, "TF_CONFIG has task index '99"),
        ({"worker": [7]}, None, "address 7 is not host:port"),
        ({"worker": [TWO[0]] * 2}, None, "the address '127.0.0.1:3737' more than once"),
        ({"worker": TWO, "chief": ["a:1", "b:1"]}, None, "has 2 chiefs"),
        (None, [], "no key 'task'"),
        (None, {"type": "evaluator", "index": 0}, "task type 'evaluator'"),
        (None, {"type": "worker", "index": 2}, "task index 2; use 0 … 1"),
        (None, {"type": "worker", "index": -1}, "task index -1; use 0 … 1"),
        (None, {"type": "worker", "index": True}, "task index True"),
        (None, {"type": "chief", "index": 0}, "task index 0; use no chief, as 'cluster' has none"),
    ],
)
def test_a_bad_tf_config_names_its_key(cluster, task, sentence):
    with pytest.raises(ClusterError, match=sentence):
        Cluster.from_environment(tf_config(cluster, task))


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"POPDIST_INSTANCE_INDEX": "x"}, "POPDIST_INSTANCE_INDEX='x' is not a number"),
        ({"POPDIST_INSTANCE_INDEX": "2"}, "rank=2 of size=2 workers"),
        ({"POPDIST_NUM_TOTAL_REPLICAS": "3"}, "replicas=3 is no multiple of the 2 workers; use 2"),
        ({"POPDIST_NUM_LOCAL_REPLICAS": "1"}, "POPDIST_NUM_LOCAL_REPLICAS=1, but process 1 of 2"),
        ({"POPDIST_NUM_INSTANCES": "9" * 5000}, "POPDIST_NUM_INSTANCES='99.*' is not a number"),
        ({"FPSIM_WORKERS": f"{TWO[0]},{TWO[0]}"}, "FPSIM_WORKERS has the address '127.* than once"),
        ({"FPSIM_WORKERS": TWO[0]}, "1 addresses for 2 workers"),
        ({"FPSIM_TRANSPORT": "udp"}, "transport='udp' is not a transport"),
        ({"FPSIM_ORDER": "any"}, "FPSIM_ORDER: order='any' is not an order"),
        ({"FPSIM_SILENCE": "0"}, "FPSIM_SILENCE='0' is not a number of seconds above 0"),
        ({"FPSIM_SILENCE": "-1"}, "FPSIM_SILENCE='-1' is not a number of seconds"),
        ({"FPSIM_TLS_CA": "/nowhere"}, "FPSIM_TLS_CA names no file"),
    ],
)
def test_bad_variables_of_poprun(variables, sentence):
    with pytest.raises(ClusterError, match=sentence):
        Cluster.from_environment(popdist(**variables))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.8.0.1:1", "[::1]:1", "localhost:1"])
def test_addresses_of_this_machine(address):
    assert is_loopback(address)


def test_other_machines_need_certificates_or_trust(tmp_path):
    far = {"FPSIM_WORKERS": f"{TWO[0]},192.0.2.7:3737"}
    with pytest.raises(ClusterError, match=r"address '192.0.2.7:3737' is outside of this machine"):
        Cluster.from_environment(popdist(**far))
    assert Cluster.from_environment(popdist(**far, FPSIM_TRUST_NETWORK="1")).trust_network
    files = {}
    for name in ("CA", "CERT", "KEY"):
        (tmp_path / name).write_text("")
        files[f"FPSIM_TLS_{name}"] = str(tmp_path / name)
    secured = Cluster.from_environment(popdist(**far, **files))
    assert secured.tls.key == tmp_path / "KEY"
    assert "KEY" not in repr(secured)
    with pytest.raises(ClusterError, match="FPSIM_TLS_KEY is not set"):
        Cluster.from_environment(popdist(**far, **{**files, "FPSIM_TLS_KEY": ""}))
