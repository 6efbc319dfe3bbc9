"""Configuration by functions means the same as the config (differential)."""

from __future__ import annotations

import pytest

from ipu.frontends.tensorflow.settings.choices import StochasticRoundingBehaviour
from ipu.frontends.tensorflow.settings.config import IPUConfig
from ipu.frontends.tensorflow.settings.legacy import (
    auto_select_ipus,
    create_ipu_config,
    select_ipus,
    set_convolution_options,
    set_floating_point_behaviour_options,
    set_matmul_options,
    set_norm_options,
    set_recomputation_options,
)
from ipu.frontends.tensorflow.settings.notes import forget


@pytest.mark.source("S4-41")
@pytest.mark.source("S1-14")
def test_functions_set_the_options_in_place():
    old = create_ipu_config(max_cross_replica_sum_buffer_size=64, selection_order=None)
    auto_select_ipus(old, num_ipus=2)
    set_matmul_options(old, {"partialsType": "half"})
    set_convolution_options(old, {"partialsType": "float"})
    set_floating_point_behaviour_options(old, div0=False)
    set_norm_options(old, use_stable_statistics=True)
    set_recomputation_options(old)
    new = IPUConfig()
    new.optimizations.maximum_cross_replica_sum_buffer_size = 64
    new.auto_select_ipus = 2
    new.matmuls.poplar_options = {"partialsType": "half"}
    new.convolutions.poplar_options = {"partialsType": "float"}
    bits = new.floating_point_behaviour
    bits.inv = bits.oflo = bits.nanoo = True
    bits.esr = StochasticRoundingBehaviour.ON
    new.norms.use_stable_statistics = new.allow_recompute = True
    assert old.to_dict() == new.to_dict()
    assert select_ipus(create_ipu_config(), (4, 5)).select_ipus == [4, 5]


def test_profiles_are_accepted_and_a_note_says_so():
    forget()
    with pytest.warns(RuntimeWarning, match="profiling=True is accepted, but"):
        assert create_ipu_config(profiling=True).to_dict() == IPUConfig().to_dict()


def test_an_argument_that_it_never_had_is_refused():
    with pytest.raises(TypeError, match=r"argument 'profilng'\. Did you mean 'profiling'"):
        create_ipu_config(profilng=True)
