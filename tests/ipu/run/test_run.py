"""A run, with a front end that does nothing: devices, events, reports, trials (law, golden)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fpsim import BINARY16, BINARY32
from ipu.machine.control import FpCtl
from ipu.machine.device import Device
from ipu.run.account import counted_name
from ipu.run.options import RunOptions
from ipu.run.places import Place
from ipu.run.run import OperationEvent, Run
from ipu.run.site import Site
from ipu.run.ways import Way


class Bare(Run):
    """A front end whose programs are steps that get the run."""

    def __init__(self, options):
        super().__init__(options)
        self.use(Device(options.target, options.control, **options.device_options))
        self.steps, self.is_open = 0, False

    @property
    def place(self):
        return Place(self.steps, 1, 2, "net", "forward")

    def about(self):
        return {"steps": self.steps, "versions": {}, "assumed": "", "unreached": ""}

    def check_way(self, way):
        if way.sr:
            raise ValueError(f"way={way} rounds stochastically")
        return way

    def check_closed(self):
        if self.is_open:
            raise RuntimeError("leave it first")

    def again(self, way, seed):
        return Bare(self.options.in_way(way, seed))

    def tried(self, step, seed):
        return step(self)


def bare(**options):
    return Bare(RunOptions(**options))


def compute(run, layer="net", direction="forward", value=70000.0):
    """One operation at a site of the run."""
    site = Site(run, run.policy.of(layer), layer, direction)
    run.device.tensor = site.name
    x = run.device.from_host([value], BINARY32)
    result = run.device.cast(x, site.activations)
    run.account.add("machine", "cast", 1)
    run.result(site.name, "cast", result)
    return site


def test_a_site_has_the_formats_of_its_layer():
    run = bare(policy={"head": "f32", "*": "mixed"}, ties="all", found_inf="status")
    site = Site(run, run.policy.of("body"), "body", "optimizer")
    assert (site.activations, site.policy.param, site.is_update) == (BINARY16, BINARY32, True)
    assert (site.name, site.device) == (counted_name("body", "optimizer"), run.device)
    assert (site.ties, site.found_inf, site.line) == ("all", "status", "")
    head = Site(run, run.policy.of("head"), "head", "forward")
    assert (head.activations, head.is_update) == (BINARY32, False)
    assert site.wide(run.device.from_host([1.0], BINARY16)).format == BINARY32


def test_a_constant_of_a_site_is_in_the_report():
    run = bare(policy="f16")
    site = compute(run)
    site.note_constant(BINARY16, 1e-9, "zero")
    (row,) = run.report()["constants"]
    assert row == {"layer": "net", "direction": "forward", "format": "binary16", "value": 1e-9,
                   "becomes": "zero", "times": 1, "line": ""}


def test_results_are_events_for_all_that_watch_and_counted_where_asked():
    first, second = [], []
    for count in (False, True):
        run = bare(policy="f16", count=count)
        assert run.is_watched is count
        run.watch(first.append)
        run.watch(second.append)
        assert run.is_watched
        compute(run, "head", "backward", 2.0)
        exponents = run.report()["exponents"]
        assert bool(exponents) is count
        if count:
            (row,) = exponents["gradients"]
            assert (row["layer"], row["counts"]) == ("head", {1: 1})
    assert first == second
    event = first[0]
    assert isinstance(event, OperationEvent)
    assert event[:4] == ("cast", "head", "backward", Place(0, 1, 2, "net", "forward"))
    assert event.array.values.tolist() == [2.0]


def test_devices_one_after_another_count_into_one_report():
    run = bare(policy="f16", count=True)
    compute(run)
    run.use(Device(control=FpCtl(nanoo=True), count=True))
    compute(run)
    assert run.report()["layers"]["net"]["forward"]["results"] == 2
    assert run.report()["layers"]["net"]["forward"]["OVERFLOW"] == 2
    assert run.device.control.nanoo


def test_the_first_exceptions_are_those_of_their_step():
    run = bare(policy="f16", count=True)
    run.step_done(0)
    compute(run)
    run.step_done(1)
    compute(run, "later")
    run.step_done(2)
    (row,) = run.report()["first"]
    assert (row["flag"], row["step"], row["layer"], row["times"]) == ("OVERFLOW", 1, "net", 1)


def test_a_report_has_what_every_run_has():
    run = bare(policy="f16", sr=True, seed=4, ties="all")
    report = run.report()
    assert (report["policy"], report["stochastic_rounding"], report["seed"], report["ties"]) == (
        "p=f16,c=f16,part=f32", True, 4, "all"
    )
    assert (report["first_step"], report["changes"], report["note"]) == (0, "", "")
    assert report["counted"] is False
    assert report["losses"] == []
    assert "OFLO 0x0" in report["status"]
    assert run.told(model="a")["model"] == "a"
    assert "model" not in run.report()


def test_a_page_has_the_advice_that_was_tried(tmp_path):
    def step(run):
        compute(run)
        return [3.0, 2.0] + [1.0 if run.way.policy.default.param == BINARY32 else 2.0] * 3

    run = bare(policy="f16", count=True)
    step(run)
    run.report(tmp_path)
    assert "beside binary32" not in (tmp_path / "report.txt").read_text(encoding="utf-8")
    advised = run.advise(step, ["fp32", "mixed"], pairs=5)
    assert [trial.judged.answer for trial in advised.trials].count("as good") == 1
    run.report(tmp_path)
    text = (tmp_path / "report.txt").read_text(encoding="utf-8")
    assert "beside binary32" in text
    assert "mixed" in text


def test_ways_that_the_front_end_cannot_run_are_not_advised():
    run = bare(policy="f16", count=True)
    site = compute(run, "net", "optimizer")
    array = run.device.from_host([1.0], BINARY16)
    run.recorder.update(
        "net", 0, BINARY16, array.carrier, np.float32([1e-5]), array.carrier
    )
    ways = [str(way) for item in run.advise().items for way in item.ways]
    assert ways
    assert not [way for way in ways if "+sr" in way]
    with pytest.raises(ValueError, match="rounds stochastically"):
        run.advise(lambda run: [1.0], ["fp16+sr"])
    assert site.is_update


def test_trials_wait_for_the_end_of_the_run():
    run = bare(count=True)
    run.is_open = True
    with pytest.raises(RuntimeError, match="leave it first"):
        run.advise(lambda run: [1.0])
    assert run.advise().trials == ()
    with pytest.raises(TypeError, match="step=3 is no function; give one that trains once"):
        bare().advise(3)


@pytest.mark.parametrize("error", [ValueError, NotImplementedError, FloatingPointError])
def test_a_trial_that_stops_has_its_first_line(error):
    def step(run):
        raise error("no such data\nat all")

    outcome = bare().trial(Way(), 1, step)
    assert (outcome.error, list(outcome.losses)) == ("no such data", [])


def test_an_error_of_another_kind_is_the_programs_own():
    def step(run):
        raise KeyError("x")

    with pytest.raises(KeyError):
        bare().trial(Way(), 1, step)


def test_losses_come_from_the_step_or_the_recorder():
    def quiet(run):
        run.recorder.loss(0, 4.0)

    assert bare().trial(Way(), 1, lambda run: [run.options.seed, 2]).losses == [1.0, 2.0]
    assert bare().trial(Way(), 1, quiet).losses == [4.0]


def test_a_format_that_the_target_lacks_is_refused():
    with pytest.raises(ValueError, match="computes in binary16, binary32, not in bfloat16"):
        bare(policy="bf16")


def test_events_are_for_functions():
    with pytest.raises(TypeError, match="see=None is no function"):
        bare().watch(None)


def test_the_base_allows_every_way():
    way = replace(Way(), sr=True)
    assert Run.check_way(bare(), way) is way
