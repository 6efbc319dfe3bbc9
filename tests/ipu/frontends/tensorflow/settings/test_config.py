"""IPUConfig: types, names, categories, dictionaries (golden: the vendor's messages; law)."""

from __future__ import annotations

import copy
import json

import pytest

from ipu.frontends.tensorflow.settings.choices import (
    SelectionOrder,
    StochasticRoundingBehaviour,
)
from ipu.frontends.tensorflow.settings.config import (
    IPUConfig,
    configure_ipu_system,
    reset_ipu_configuration,
)
from ipu.frontends.tensorflow.settings.notes import forget
from ipu.frontends.tensorflow.settings.options import CATEGORIES, OPTIONS
from ipu.frontends.tensorflow.settings.system import current, is_configured


@pytest.fixture
def config():
    forget()
    yield IPUConfig()
    reset_ipu_configuration()


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("allow_recompute", 1, "bool"),
        ("io_tiles.num_io_tiles", True, "int"),
        ("io_tiles.available_memory_proportion", 1, "float"),
        ("serialization_output_folder", None, "str"),
        ("matmuls.poplar_options", "half", "dict"),
        ("floating_point_behaviour.esr", True, "StochasticRoundingBehaviour"),
        ("selection_order", 1, "SelectionOrder"),
        (
            "auto_select_ipus", True,
            "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]",
        ),
        ("select_ipus", [1, 2.0], "typing.Union[int, typing.List[int], typing.Tuple[int, ...]]"),
    ],
)
def test_another_type_is_refused_and_nothing_changes(config, name, value, kind):
    category, last = parts(config, name)
    before = getattr(category, last)
    with pytest.raises(TypeError) as refused:
        setattr(category, last, value)
    assert str(refused.value) == f"Trying to set {name} to {value}, but it must be of type {kind}"
    assert getattr(category, last) == before


def parts(config, name):
    *above, last = name.split(".")
    for part in above:
        config = getattr(config, part)
    return config, last


@pytest.mark.source("X-05")
def test_an_unknown_name_is_answered_with_the_nearest(config):
    with pytest.raises(ValueError, match=r"^'matmul' is not a valid attribute of this config\. "
                       r"Did you mean 'matmuls'\?$"):
        config.matmul.poplar_options = {"partialsType": "half"}
    with pytest.raises(ValueError, match=r"Did you mean 'floating_point_behaviour\.nanoo'\?$"):
        config.floating_point_behaviour.nano = True
    with pytest.raises(ValueError, match=r"^'xyz' is not a valid attribute of this config\.$"):
        _ = config.xyz


def test_a_category_cannot_be_assigned(config):
    with pytest.raises(AttributeError, match="norms is a category and cannot be assigned to"):
        config.norms = {}


def test_a_deprecated_option_says_where_it_went(config):
    with pytest.warns(FutureWarning, match=r"enable_fast_math has been deprecated: .*math\.fast"):
        config.optimizations.enable_fast_math = True


SWITCHES = [n for n, row in OPTIONS.items() if row.type == "bool" and not row.deprecated]


@pytest.mark.parametrize("name", SWITCHES)
def test_every_switch_can_be_set_and_read(config, name):
    category, last = parts(config, name)
    setattr(category, last, not OPTIONS[name].default)
    assert config.to_dict()[name] is not OPTIONS[name].default
    assert OPTIONS[name].default == IPUConfig().to_dict()[name]


def test_dictionaries_and_json_give_back_the_config(config):
    config.auto_select_ipus = [2, 2]
    config.selection_order = SelectionOrder.HOOF
    config.floating_point_behaviour.esr = StochasticRoundingBehaviour.ON
    config.matmuls.poplar_options["partialsType"] = "half"
    assert json.loads(config.to_json())["floating_point_behaviour.esr"] == 1
    other = IPUConfig()
    other.from_json(config.to_json())
    assert str(other) == str(config)
    assert IPUConfig().matmuls.poplar_options == {}, "a default was changed in place"


def test_a_name_that_a_dictionary_lacks_keeps_its_value(config):
    partial = config.to_dict()
    del partial["allow_recompute"]
    config.allow_recompute = True
    with pytest.warns(RuntimeWarning, match="allow_recompute didn't have a value: the existing"):
        config.from_dict(partial)
    assert config.allow_recompute


def test_a_dictionary_holds_names_of_options_alone(config):
    dictionary = config.to_dict() | {"allow_recompute": True, "norms.use_stable_statistic": True}
    with pytest.raises(ValueError, match=r"Did you mean 'norms\.use_stable_statistics'\?"):
        config.from_dict(dictionary)
    assert not config.allow_recompute


def test_metadata_of_options_and_categories(config):
    metadata = config.get_attribute_metadata("floating_point_behaviour.esr")
    assert (metadata.name, metadata.type) == ("floating_point_behaviour.esr",
                                              "StochasticRoundingBehaviour")
    assert config.norms.get_attribute_metadata("use_stable_statistics").default is False
    assert config.get_attribute_metadata("norms").type is None
    with pytest.raises(ValueError, match=r"Could not get attribute metadata for 'norms\.stable'"):
        config.get_attribute_metadata("norms.stable")


def test_text_shows_every_option_by_its_full_name(config):
    lines = str(config).splitlines()
    assert len(lines) == len(OPTIONS)
    assert "floating_point_behaviour.esr = StochasticRoundingBehaviour.OFF" in lines
    assert "serialization_output_folder = ''" in lines
    assert repr(config).startswith("IPUConfig:\n  allow_recompute = False")
    assert set(CATEGORIES) <= {n.rpartition(".")[0] for n in OPTIONS}


def test_a_copy_is_independent(config):
    other = copy.deepcopy(config)
    other.norms.use_stable_statistics = True
    assert not config.norms.use_stable_statistics


def test_nothing_happens_before_the_system_is_configured(config):
    config.auto_select_ipus = 1
    assert not is_configured()
    config.configure_ipu_system()
    assert current().n_ipus == (1,)
    with pytest.raises(TypeError, match="must be an IpuOptions instance"):
        configure_ipu_system({"auto_select_ipus": 1})
