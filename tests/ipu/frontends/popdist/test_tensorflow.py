"""An IPUConfig by poprun's settings (golden)."""

from __future__ import annotations

import types

import pytest

from ipu.frontends.popdist.tensorflow import set_ipu_config


def config():
    distribution = types.SimpleNamespace(process_count=0, process_index=0)
    experimental = types.SimpleNamespace(multi_replica_distribution=distribution)
    return types.SimpleNamespace(auto_select_ipus=0, experimental=experimental)


def written(result):
    distribution = result.experimental.multi_replica_distribution
    return result.auto_select_ipus, distribution.process_count, distribution.process_index


def test_without_poprun_there_is_one_ipu_and_one_process():
    result = config()
    set_ipu_config(result)
    assert written(result) == (1, 1, 0)


def test_ipus_are_those_of_this_processs_replicas(monkeypatch):
    for name, value in {"NUM_INSTANCES": 3, "INSTANCE_INDEX": 2, "NUM_LOCAL_REPLICAS": 4,
                        "NUM_TOTAL_REPLICAS": 12, "NUM_IPUS_PER_REPLICA": 2}.items():
        monkeypatch.setenv(f"POPDIST_{name}", str(value))
    result = config()
    set_ipu_config(result, ipus_per_replica=2)
    assert written(result) == (8, 3, 2)
    result = config()
    set_ipu_config(result, configure_device=False)
    assert written(result) == (0, 3, 2)
    with pytest.raises(ValueError, match=r"ipus_per_replica=1 and poprun has .* 2; use one number"):
        set_ipu_config(result, 1)
