"""Models in several processes: the bits of one, agreement, sentences (law, golden)."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.ipu.frontends.poptorch.framework import poptorch, session_of, torch

from ipu.members.channel import Channel  # isort: skip
from ipu.members.members import Members  # isort: skip
from ipu.members.local_transport import run_local  # isort: skip
from ipu.members.transport import JoinError, StoppedError  # isort: skip
from ipu.frontends.poptorch.engine import processes as module  # isort: skip
from ipu.frontends.poptorch.engine.processes import CHECK_EVERY, PoptorchProcesses, join  # isort: skip
from ipu.members import members  # isort: skip
from ipu.members.ending import leave  # isort: skip
from ipu.learn.loss_scale.histogram import EdgeHistogram  # isort: skip
from ipu.plan.orders import Order  # isort: skip
from tests.ipu.frontends.poptorch.engine import sharing  # isort: skip

LIMIT = 300
PROGRAM = "tests.ipu.frontends.poptorch.engine.sharing"
MESSAGE = "run the same program on all processes, with the same number of batches"


# Real processes -----------------------------------------------------------------------------------


def poprun(instances, replicas, transport, *program):
    package = {"grpc": "grpc_tools", "mpi": "mpi4py"}.get(transport)
    if package and not find_spec(package):
        pytest.skip(f"the extra {transport} is not installed")
    variables = {
        k: v for k, v in os.environ.items() if not k.startswith(("POPDIST_", "OMPI_", "FPSIM_T"))
    }
    options = ["--num-instances", instances, "--num-replicas", replicas, "--transport", transport]
    done = subprocess.run(
        [sys.executable, "-m", "ipu.experiments.cli", "poprun", "--allow-run-as-root",
         *map(str, options), *map(str, program)],
        env=variables | {"PYTHONPATH": "."}, capture_output=True, text=True, timeout=LIMIT,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def told(output):
    """What each process prints, by its number."""
    lines = re.findall(r"^\[\d+\] (process=.*)$", output, re.MULTILINE)
    rows = [dict(field.split("=") for field in line.split(";")) for line in lines]
    return {int(row.pop("process")): row for row in rows}


def check(alone, replicas, processes, output):
    """Weights and slots of one process everywhere, buffers and losses of each replica."""
    rows = told(output)
    assert sorted(rows) == list(range(processes)), output
    local = replicas // processes
    for process, row in rows.items():
        share = slice(process * local, (process + 1) * local)
        assert (row["weights"], row["scale"]) == (alone["weights"], str(alone["scale"]))
        for name in ("buffers", "losses"):
            assert row[name] == str(alone[name][share]), (process, name)


def python(*arguments):
    return sys.executable, "-m", PROGRAM, *arguments


@pytest.mark.source("S3-17")
def test_two_processes_have_the_bits_of_one_with_two_replicas():
    alone = sharing.train(2)
    status, output, errors = poprun(2, 2, "grpc", *python())
    assert status == 0, errors
    check(alone, 2, 2, output)


@pytest.mark.tier("full")
@pytest.mark.parametrize(("processes", "transport"), [(2, "grpc"), (4, "grpc"), (2, "mpi")])
def test_four_replicas_have_the_bits_of_one_process(processes, transport):
    """With an automatic loss scale, whose histogram is that of all replicas."""
    alone = sharing.train(4, automatic=True)
    status, output, errors = poprun(processes, 4, transport, *python("0", "3", "automatic"))
    assert status == 0, errors
    check(alone, 4, processes, output)


@pytest.mark.tier("full")
def test_an_unedited_program_of_fpsim_torch_has_them_too(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        f"import sys\nfrom {PROGRAM} import train\ntold = train(*map(int, sys.argv[1:]))\n"
        "print(*(f'{k}={v}' for k, v in told.items()), sep=';')\n"
    )
    status, output, errors = poprun(1, 1, "local", "fpsim", "torch", path, 4)
    assert status == 0, errors
    alone = {name: ast.literal_eval(text) if name in ("buffers", "losses") else text
             for name, text in told(output)[0].items()}
    status, output, errors = poprun(2, 4, "grpc", "fpsim", "torch", path)
    assert status == 0, errors
    check(alone, 4, 2, output)


@pytest.mark.tier("full")
@pytest.mark.parametrize("launcher", [[sys.executable], ["fpsim", "torch"]])
def test_a_process_with_fewer_calls_stops_all(tmp_path, launcher):
    path = tmp_path / "program.py"
    path.write_text(f"from {PROGRAM} import train\nfrom ipu.frontends import popdist\n"
                    "train(0, 1 + popdist.getInstanceIndex())\n")
    status, _, errors = poprun(2, 2, "grpc", *launcher, path)
    assert status != 0
    places = r"worker 0 at .* has come to its end, worker 1 at .* to the gradients in step "
    assert re.search(places, errors)


# Threads ------------------------------------------------------------------------------------------


def stopped(work, size=2):
    """What each process says; "went on" for one that was not stopped."""

    def attempt(transport):
        try:
            work(PoptorchProcesses(Members(Channel(transport)), 1), transport.rank)
        except (StoppedError, JoinError) as stop:
            return str(stop)
        return "went on"

    return run_local(size, attempt)


def net(shape=2):
    return torch.nn.Sequential(torch.nn.Linear(shape, 1), torch.nn.BatchNorm1d(1))


def test_a_fresh_model_takes_the_first_processs_weights_and_buffers():
    session = session_of()

    def work(transport):
        processes, model = PoptorchProcesses(Members(Channel(transport)), 2), net()
        with torch.no_grad():
            for x in model.state_dict().values():
                x.fill_(transport.rank + 1)
        processes.start(model, ["plan"], session, fresh=True)
        first = [x.flatten()[0].item() for x in model.state_dict().values()]
        with torch.no_grad():
            model[0].bias.fill_(9 + transport.rank)
        processes.start(model, ["plan"], session, fresh=False)
        return first, model[0].bias.item(), processes.first, processes.total

    for rank, (first, bias, first_replica, total) in enumerate(run_local(2, work)):
        assert first == [1.0] * len(first)
        assert bias == 9 + rank
        assert (first_replica, total) == (2 * rank, 4)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (lambda p, r, s: p.start(net(2 + r), [], s, fresh=True), r"float32 \(1, [23]\), .* \(1, "),
        (lambda p, r, s: p.start(net(), [f"seed: {r}"], s, fresh=True), r"has seed: \d, worker \d"),
    ],
)
def test_models_and_plans_that_differ_are_refused(start, message):
    session = session_of()
    texts = stopped(lambda processes, rank: start(processes, rank, session))
    assert all(re.search(message, text) for text in texts), texts


def test_updates_meet_or_stop():
    def meet(names):
        return stopped(lambda processes, rank: processes.meet(names[rank], 3))

    assert meet([["parameter 0"], ["parameter 0"]]) == ["went on"] * 2
    other = meet([["parameter 0", "parameter 1"], ["parameter 0", "parameter 2"]])
    sentence = (
        "worker 1 has parameter 2, worker 0 parameter 1, in step 3; run the same program on all "
        "processes, with the same parameters in each step"
    )
    assert other == [sentence] * 2

    def late(processes, rank):
        processes.meet(["parameter 0"], 3 + rank)

    assert any("has come to the gradients in step 4, worker 0" in text for text in stopped(late))


@pytest.mark.parametrize("ended", [0, 1])
def test_the_end_of_one_stops_the_others(ended):
    def work(processes, rank):
        if rank == ended:
            processes.members.channel.barrier("the end of the program")
        else:
            processes.meet(["parameter 0"], 3)

    (text,) = {text for text in stopped(work) if text != "went on"}
    assert re.search(f"worker {ended}.* has come to its end, worker {1 - ended}.*{MESSAGE}", text)


@pytest.mark.parametrize("step", [1, 2, CHECK_EVERY])
def test_weights_are_compared_after_the_first_update_and_now_and_then(step):
    def work(processes, rank):
        processes.check([torch.full((3,), float(rank))], step)

    texts = stopped(work)
    if step == 2:
        assert texts == ["went on"] * 2
    else:
        assert any(f"after step {step}; they must be equal" in text for text in texts)
    assert stopped(lambda p, _: p.check([torch.ones(3)], step)) == ["went on"] * 2


@pytest.mark.parametrize("step", [2, CHECK_EVERY])
def test_the_end_of_the_program_compares_what_was_not(step):
    def work(processes, rank):
        processes.check([torch.ones(3)], step - 1 or 1)
        processes.check([torch.full((3,), float(rank * (step == 2)))], step)
        leave(processes.members.channel)

    texts = stopped(work)
    if step == CHECK_EVERY:
        assert texts == ["went on"] * 2
    else:
        assert any("after step 2; they must be equal" in text for text in texts), texts
        assert "went on" not in texts


@pytest.mark.parametrize("ended", [0, 1])
def test_the_last_comparison_of_one_stops_the_others(ended):
    def work(processes, rank):
        processes.check([torch.ones(3)], 2)
        if rank == ended:
            leave(processes.members.channel)
        else:
            processes.meet(["parameter 0"], 3)

    assert all(
        re.search(f"worker {ended}.* has come to its end, worker {1 - ended}.*{MESSAGE}", text)
        for text in stopped(work)
    )


def test_a_histogram_is_that_of_all():
    def work(transport):
        histogram = EdgeHistogram(1.0)
        histogram.upper, histogram.lower = 1 + transport.rank, 10
        PoptorchProcesses(Members(Channel(transport)), 1).add(histogram)
        return histogram.upper, histogram.lower

    assert run_local(3, work) == [(6, 30)] * 3


# Joining ------------------------------------------------------------------------------------------


def options(process, processes, local=1):
    opts = poptorch.Options().replicationFactor(local)
    opts.Distributed.configureProcessId(process, processes)
    return opts


@pytest.fixture
def dealt(monkeypatch):
    """Process 1 of 2 with 4 replicas, as poprun tells it."""
    for name, value in {"POPDIST_NUM_INSTANCES": 2, "POPDIST_INSTANCE_INDEX": 1,
                        "POPDIST_NUM_TOTAL_REPLICAS": 4, "POPDIST_NUM_LOCAL_REPLICAS": 2,
                        "FPSIM_TRANSPORT": "mpi", "FPSIM_ORDER": "tree"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setattr(module, "_joined", None)


def test_one_process_joins_nobody():
    assert join(options(0, 1), session_of()) is None


@pytest.mark.usefixtures("dealt")
def test_options_know_poprun_and_processes_are_joined_once(monkeypatch):
    def works(transport):
        return transport

    (_, transport) = run_local(2, works)
    calls = []
    monkeypatch.setattr(members, "connect", lambda *a: calls.append(a) or transport)
    monkeypatch.setattr(members, "end_with_program", lambda channel: None)
    assert poptorch.Options().Distributed.numProcesses == 2
    first, second = (join(options(1, 2, local=2), session_of()) for _ in range(2))
    assert first.members.channel is second.members.channel
    assert (first.total, first.first, first.order) == (4, 2, Order.TREE)
    ((cluster, text),) = calls
    assert (cluster.rank, cluster.size) == (1, 2)
    lines = text.splitlines()
    assert lines[:2] == ["poptorch", "order: tree"]
    assert {"random bits: Philox(seed=0)", "target: mk2"} < set(lines)


@pytest.mark.usefixtures("dealt")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((0, 2, 2), "has process 0 of 2, and this one is 1 of 2; use popdist.poptorch.Options"),
        ((1, 2, 1), r"replicationFactor\(1\), and poprun deals 2 replicas to each process; use"),
    ],
)
def test_options_that_poprun_does_not_know_are_refused(flags, message):
    with pytest.raises(ValueError, match=message):
        join(options(*flags), session_of())


def test_processes_that_nothing_has_started_are_refused():
    message = "nothing has started other processes; .* --num-instances 2 --num-replicas 6 …"
    with pytest.raises(ValueError, match=message):
        join(options(0, 2, local=3), session_of())


def test_an_mpi_launcher_is_one_too(monkeypatch):
    for name, value in (("SIZE", "2"), ("RANK", "1")):
        monkeypatch.setenv(f"OMPI_COMM_WORLD_{name}", value)
    run_options = poptorch.Options().replicationFactor(3)
    cluster = module._cluster(run_options)
    assert (cluster.rank, cluster.size, cluster.replicas, cluster.transport) == (1, 2, 6, "mpi")
