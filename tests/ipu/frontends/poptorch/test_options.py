"""Options: defaults, setters, copies, files (golden)."""

from __future__ import annotations

import re

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch
from tests.ipu.frontends.poptorch.listing import document

Mode = poptorch.OutputMode


@pytest.mark.source("S2-23", "S2-34")
def test_defaults_are_those_that_poptorch_prints():
    options = poptorch.Options()
    assert options.toDict() == {
        "replication_factor": 1, "broadcast_buffers": True, "device_iterations": 1, "log_dir": ".",
        "auto_round_num_ipus": False, "anchored_tensors": {}, "output_mode": 4,
        "output_return_period": 1, "connection_type": 0, "sync_pattern": 0,
        "available_memory_proportion": {},
    }
    assert options.defaultOutputMode()
    shown = repr(options.outputMode(Mode.All))
    assert "output_mode=2" in shown
    assert "gradient_accumulation=1" in shown
    assert "reduction_type=<ReductionType.Mean: 1>" in shown
    assert "half_float_casting=<HalfFloatCastingBehavior.Default: 2>" in shown


#: Groups that the tutorial prints with the options.
GROUPS = ("Distributed", "Jit", "Precision", "TensorLocations", "Training")


def told(options):
    """Options by name as `name=value`, of all groups; the tutorial's print has them in this form.

    Two lists of its autocast policy have 'at', which is no operation of torch; here they have not.
    """
    groups = [options.toDict(), *(getattr(options, name).toDict() for name in GROUPS)]
    rows = {name: value for group in groups for name, value in group.items()}
    policy = rows.pop("autocast_policy_dict")
    assert all(name in policy["fp16"] for name in ("matmul", "conv2d", "addmm"))
    return {name: f"{name}={value!r}" for name, value in rows.items()}


@pytest.mark.source("S2-23")
def test_options_print_what_the_tutorial_prints():
    """Once as they are made, once after the tutorial has set them."""
    printed = [x for x in document("002").splitlines() if x.startswith("replication_factor=1Opt")]
    settings = poptorch.Options()
    before = told(settings)
    settings.deviceIterations(10).outputMode(Mode.All).Training.gradientAccumulation(10)
    remote = poptorch.TensorLocationSettings().useOnChipStorage(False)
    settings.TensorLocations.setOptimizerLocation(remote)
    for options, text in zip((before, told(settings)), printed, strict=True):
        told_options = {name: shown for name, shown in options.items() if f"{name}=" in text}
        assert len(told_options) >= 17
        for name, shown in told_options.items():
            whole = re.escape(shown) + r"(?=[,)O]|Distributed|$)"  # 1 is no beginning of 10
            assert re.search(whole, text), name
            assert re.search(whole, repr(settings)) or options is before
    assert all(f"{group}=" in repr(settings) for group in GROUPS)


def test_setters_chain_and_check():
    options = poptorch.Options().deviceIterations(3).replicationFactor(2).outputMode(Mode.EveryN, 3)
    assert (options.device_iterations, options.replication_factor) == (3, 2)
    assert (options.output_mode, options.output_return_period) == (1, 3)
    assert options.outputMode(Mode.Sum, 7).output_return_period == 1
    assert options.randomSeed(5).random_seed == 5


@pytest.mark.source("S2-37")
def test_clones_are_apart():
    options = poptorch.Options().deviceIterations(3)
    options.setExecutionStrategy(poptorch.PipelinedExecution("A", "B"))
    twin = options.clone()
    assert repr(twin) == repr(options)
    twin.deviceIterations(4).Training.gradientAccumulation(8)
    assert options.device_iterations == 3
    assert options.Training.gradient_accumulation == 1
    options.freeze()
    with pytest.raises(AttributeError, match="frozen"):
        options.Training.gradientAccumulation(2)
    with pytest.raises(AttributeError, match="setExecutionStrategy"):
        options.setExecutionStrategy(poptorch.ShardedExecution())
    options.clone().Training.gradientAccumulation(2)


#: What is accepted without an effect on this machine, and its arguments.
SILENT = {
    "syncPattern": (poptorch.SyncPattern(1),),
    "useIpuId": (0,), "useIpuModel": (True,), "logDir": ("x",), "enableStableNorm": (False,),
    "sourceLocationExcludes": (["x"],),
    "anchorTensor": ("short", "long"),
}
#: What has an effect, or nothing to have one on.
QUIET = {
    "showCompilationProgressBar": (), "relaxOptimizerAttributesChecks": (),
    "logCycleCount": (True,),
    "modelName": ("net",), "updatableNamedBuffers": (["x"],), "enableSyntheticData": (True,),
    "connectionType": (poptorch.ConnectionType.OnDemand,), "broadcastBuffers": (),
    "inputReplicaGrouping": (1,), "enableProfiling": ("x",), "disableProfiling": (),
    "autoRoundNumIPUs": (), "useOfflineIpuTarget": (2,),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_is_not_modelled_says_so(name, monkeypatch):
    from ipu.frontends.poptorch import dictionary

    monkeypatch.setattr(dictionary, "_told", set())
    with pytest.warns(UserWarning, match="is accepted and has no effect here"):
        assert isinstance(getattr(poptorch.Options(), name)(*SILENT[name]), poptorch.Options)


@pytest.mark.parametrize("name", QUIET)
def test_what_is_modelled_says_nothing(name):
    assert isinstance(getattr(poptorch.Options(), name)(*QUIET[name]), poptorch.Options)


def test_options_come_from_a_file(tmp_path):
    path = tmp_path / "options.txt"
    path.write_text("deviceIterations(4)  # more\n\nTraining.gradientAccumulation(2)\n"
                    "outputMode(poptorch.OutputMode.All)\n")
    options = poptorch.Options().loadFromFile(str(path))
    assert (options.device_iterations, options.Training.gradient_accumulation) == (4, 2)
    path.write_text("deviceIteration(4)\n")
    with pytest.raises(ValueError, match=r"line 1: 'deviceIteration\(4\)' is no call of an option"):
        poptorch.Options().loadFromFile(str(path))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda o: o.deviceIterations(0), ValueError, r"deviceIterations\(0\): use 1 or more"),
        (lambda o: o.replicationFactor(1.0), TypeError, "use a whole number"),
        (lambda o: o.outputMode(2), TypeError, "is not a poptorch.OutputMode"),
        (lambda o: o.outputMode(Mode.EveryN), ValueError, "EveryN output must have output_return"),
        (lambda o: o.setExecutionStrategy("B1"), TypeError, "is not an execution strategy"),
        (lambda o: o.setAvailableMemoryProportion(0.5), TypeError, "0.5 is no dictionary"),
        (lambda o: o.setAvailableMemoryProportion({"0": 0.5}), ValueError, "Invalid key: 0"),
        (lambda o: o.setAvailableMemoryProportion({"IPU0": 2}), ValueError, "use a share from 0"),
        (lambda o: o.broadcastBuffers(False), ValueError, r"broadcastBuffers\(False\) is not mod"),
        (lambda o: o.inputReplicaGrouping(2), ValueError, "each replica gets samples of its own"),
        (lambda o: o.connectionType(0), TypeError, "is not a poptorch.ConnectionType"),
        (lambda o: o.randomSeed(-1), ValueError, "use 0 or more"),
        (lambda o: o.enableSyntheticData(1), TypeError, "use True or False"),
    ],
)
def test_bad_input_is_one_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call(poptorch.Options())
