"""IPUs of a run and of its config (golden messages)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.estimator.run_config import IPURunConfig, RunConfig
from ipu.frontends.tensorflow.settings.legacy import auto_select_ipus, create_ipu_config


@pytest.mark.source("S1-15")
def test_replicas_times_shards_are_the_ipus():
    four = auto_select_ipus(create_ipu_config(), 4)
    assert IPURunConfig(ipu_options=four, num_replicas=2, num_shards=2).num_replicas == 2
    with pytest.raises(ValueError, match=r"configured with 3 devices \(3 num_replicas times 1 num"):
        IPURunConfig(ipu_options=four, num_replicas=3)
    with pytest.raises(ValueError, match="requires more than one device, but `ipu_options` is No"):
        IPURunConfig(num_replicas=2)
    with pytest.raises(TypeError, match="is no IPUConfig"):
        IPURunConfig(ipu_options={})
    with pytest.raises(
        ValueError, match="iterations_per_loop=0 is not a number of them; use 1 or more"
    ):
        IPURunConfig(0)
    assert IPURunConfig(ipu_options=auto_select_ipus(create_ipu_config(), [1, 2]), ordinal=1,
                        num_replicas=2).ordinal == 1
    assert RunConfig(None).ipu_run_config == IPURunConfig()
