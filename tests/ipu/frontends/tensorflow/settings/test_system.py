"""What a configuration means, what it refuses and what it only accepts (golden)."""

from __future__ import annotations

import pytest

from fpsim.records.formats import BINARY16, BINARY32
from ipu.frontends.tensorflow.settings.choices import (
    DeviceConnectionType,
    StochasticRoundingBehaviour,
)
from ipu.frontends.tensorflow.settings.config import IPUConfig
from ipu.frontends.tensorflow.settings.notes import forget
from ipu.frontends.tensorflow.settings.system import configure, current, is_configured, reset
from ipu.machine.control import ALL_ON, FpCtl


@pytest.fixture(autouse=True)
def unconfigured():
    forget()
    reset()
    yield
    reset()


def options(**changes):
    entries = IPUConfig().to_dict() | {"auto_select_ipus": 1}
    return entries | {name.replace("__", "."): value for name, value in changes.items()}


def test_an_unconfigured_machine_is_an_error():
    with pytest.raises(RuntimeError, match="No IPU devices configured"):
        current()


def test_defaults_round_to_nearest_and_stop_at_nothing():
    system = configure(options())
    assert system.control == FpCtl()
    assert (system.partials, system.conv_partials) == (BINARY32, BINARY32)
    assert (system.n_ipus, system.stable_statistics, system.recompute) == ((1,), False, False)


def test_set_all_turns_every_control_bit_on():
    assert configure(options(floating_point_behaviour__set_all=True)).control == ALL_ON


@pytest.mark.parametrize("member", list(StochasticRoundingBehaviour))
def test_esr_is_set_for_every_value_but_off(member):
    system = configure(options(floating_point_behaviour__esr=member.value))
    assert system.rounding is member
    assert system.control.esr is (member is not StochasticRoundingBehaviour.OFF)


def test_partials_are_the_libraries_words():
    half = {"partialsType": "half"}
    system = configure(options(matmuls__poplar_options=half))
    assert (system.partials, system.conv_partials) == (BINARY16, BINARY32)
    with pytest.raises(ValueError, match=r"convolutions.*partialsType='float16'.*'float' or"):
        configure(options(convolutions__poplar_options={"partialsType": "float16"}))
    with pytest.raises(ValueError, match=r"matmuls.*availableMemoryProportion='2' is not a share"):
        configure(options(matmuls__poplar_options={"availableMemoryProportion": "2"}))


GROUP = "norms.experimental.distributed_batch_norm_replica_group_size"


@pytest.mark.source("S0-27")
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"select_ipus": [1]}, "Only one of `auto_select_ipus` and `select_ipus` can be set."),
        (
            {"auto_select_ipus": [], "select_ipus": [3, 3]},
            "All MultiIPU indices in `select_ipus` must be unique.",
        ),
        ({"io_tiles.num_io_tiles": 32, GROUP: 2}, f"{GROUP} is not supported with I/O tiles."),
        ({GROUP: 0}, f"{GROUP} must be at least 1."),
        (
            {"io_tiles.place_ops_on_io_tiles": True},
            "Cannot place ops on I/O tiles when io_tiles.num_io_tiles == 0",
        ),
        (
            {"device_connection.type": DeviceConnectionType.NEVER.value},
            "device_connection.version must be set when device_connection.type is "
            "DeviceConnectionType.NEVER or DeviceConnectionType.PRE_COMPILE",
        ),
        (
            {"experimental.multi_replica_distribution.process_count": 2,
             "experimental.multi_replica_distribution.process_index": 2},
            "experimental.multi_replica_distribution.process_index must be in the range "
            "[0, experimental.multi_replica_distribution.process_count).",
        ),
        ({"auto_select_ipus": 0}, "auto_select_ipus=0 is not a number of IPUs; use 1 or more"),
    ],
)
def test_options_that_exclude_each_other_are_refused(changes, sentence):
    with pytest.raises(ValueError, match=r".") as refused:
        configure(options() | changes)
    assert str(refused.value) == sentence
    assert not is_configured()


def test_what_is_not_modelled_says_so_once():
    changed = options(
        optimizations__combine_matmuls=True,
        matmuls__poplar_options={"availableMemoryProportion": "0.1", "use128BitLoad": "true"},
    )
    with pytest.warns(RuntimeWarning) as told:
        configure(changed)
    assert [str(warning.message) for warning in told] == [
        "optimizations.combine_matmuls = True is accepted, but the simulation does not model it",
        "matmuls.poplar_options: use128BitLoad is accepted, but the simulation models "
        "partialsType and availableMemoryProportion alone",
    ]
    configure(changed)


def test_another_configuration_replaces_the_first_and_says_so():
    configure(options())
    configure(options())
    with pytest.warns(RuntimeWarning, match="Resetting existing IPU configuration"):
        configure(options(allow_recompute=True))
    assert current().recompute
