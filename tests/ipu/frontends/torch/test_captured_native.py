"""Replayed steps below their handlers: native calls on memory that stays, beside eager steps.

Whatever the numbers are, values, flags, cycles, ledger and account are those of the same program
run eagerly; what leaves a step is the program's own (differential, law).
"""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import cross_entropy, mse_loss  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as attention  # noqa: E402

import fpsim.torch  # noqa: E402
from ipu.learn.policy import Policy  # noqa: E402

_STEPS = 8
#: Two steps are noted, and a third one with the state that the first has made.
_REPLAYED = _STEPS - 3
_CLASSES, _WIDTH, _HEADS, _PLACES = 7, 8, 2, 5


class _Block(nn.Module):
    """A block of a decoder."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.qkv, self.mix = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.wide = nn.Sequential(
            nn.Linear(_WIDTH, 2 * _WIDTH), nn.GELU(), nn.Linear(2 * _WIDTH, _WIDTH)
        )

    def forward(self, x):
        split = self.qkv(self.norm1(x)).unflatten(-1, (3, _HEADS, _WIDTH // _HEADS))
        attended = attention(*split.permute(2, 0, 3, 1, 4), is_causal=True)
        x = x + self.mix(attended.transpose(1, 2).flatten(2))
        return x + self.wide(self.norm2(x))


def _decoder():
    return nn.Sequential(
        nn.Embedding(_CLASSES, _WIDTH), _Block(), nn.LayerNorm(_WIDTH),
        nn.Linear(_WIDTH, _CLASSES), nn.Flatten(0, 1),
    )


def _texts(n=_STEPS):
    source = torch.Generator().manual_seed(3)
    shape = 3, _PLACES
    return [
        (torch.randint(_CLASSES, shape, generator=source),
         torch.randint(_CLASSES, shape, generator=source).flatten()) for _ in range(n)
    ]


def _perceptron(*between):
    return nn.Sequential(nn.Linear(6, 9), nn.ReLU(), *between, nn.Linear(9, _CLASSES))


def _rows(n=_STEPS, scale=1.0):
    source = torch.Generator().manual_seed(4)
    return [
        (scale * torch.randn(4, 6, generator=source),
         torch.randint(_CLASSES, (4,), generator=source)) for _ in range(n)
    ]


def _images(n=_STEPS):
    source = torch.Generator().manual_seed(4)
    return [
        (torch.randn(2, 1, 6, 6, generator=source),
         torch.randint(_CLASSES, (2,), generator=source)) for _ in range(n)
    ]


def _network_of_images():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(27, _CLASSES),
    )


def _curves():
    return nn.Sequential(
        nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 9), nn.SiLU(), nn.Linear(9, 9), nn.Sigmoid(),
        nn.LayerNorm(9), nn.Linear(9, _CLASSES),
    )


def _convolutions():
    """Strides, dilation, groups, a convolution turned round, windows that meet."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=2, bias=False), nn.MaxPool2d(2, 1),
        nn.ConvTranspose2d(4, 2, 3, stride=2), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8, _CLASSES),
    )


def _wide():
    """Products that run in parts."""
    return nn.Sequential(nn.Linear(6, 530), nn.ReLU(), nn.Linear(530, 130), nn.Linear(130, 7))


PROGRAMS = {
    "perceptron": (_perceptron, _rows),
    "dropout": (lambda: _perceptron(nn.Dropout(0.5)), _rows),
    "curves": (_curves, _rows),
    "decoder": (_decoder, _texts),
    "images": (_network_of_images, _images),
    "convolutions": (_convolutions, _images),
    "wide": (_wide, _rows),
}
OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.125),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.125, momentum=0.5, weight_decay=2.0**-8),
    "adamw": lambda p: torch.optim.AdamW(p, lr=2.0**-6, eps=2.0**-10),
}


def _step_of(net, stepping, loss_of=cross_entropy):
    def step(x, wanted):
        stepping.zero_grad()
        loss = loss_of(net(x), wanted)
        loss.backward()
        stepping.step()
        return loss

    return step


def _run(
    build, batches, optimiser="momentum", *, capture, between=None, check=1 << 20, n_steps=None,
    **options
):
    """What a training leaves behind, its captured step, and its losses and gradients."""
    torch.manual_seed(7)
    options = {"sr": True, "seed": 2, **options}
    run = fpsim.torch.machine(options.pop("policy", "fp16"), **options)
    net = build()
    stepping = OPTIMISERS[optimiser](net.parameters())
    step = _step_of(net, stepping)
    losses, gradients = [], []
    with warnings.catch_warnings(), run:
        warnings.simplefilter("ignore")
        if capture:
            step = run.captured(step, check=check)
        for i, batch in enumerate(batches()):
            if between is not None:
                between(i, net, stepping, run)
            losses.append(step(*batch).detach())
            gradients.append([p.grad for p in net.parameters()])
    return _outcome(run, net, stepping, losses, gradients), step


def _outcome(run, net, stepping, losses, gradients):
    tensors = [*net.parameters(), *net.buffers(), *losses, *(g for row in gradients for g in row)]
    tensors += [x for p in stepping.state for x in stepping.state[p].values()
                if isinstance(x, torch.Tensor)]
    device, report = run.device, run.report()
    return {
        "bits": [None if x is None else x.detach().numpy().tobytes() for x in tensors],
        "strides": [None if x is None else x.stride() for x in tensors],
        "flags": [int(context.flags) for context in device._contexts.values()],
        "status": device.status_word, "cycles": device.vector_cycles,
        "ledger": {key: (t.products, t.cycles, t.macs) for key, t in device.ledger.rows.items()},
        "calls": {kind: dict(rows) for kind, rows in run.account._calls.items()},
        "elements": {kind: dict(rows) for kind, rows in run.account._elements.items()},
        "place": run.place, "layers": report["layers"],
        # A replayed step has no line of its own.
        "constants": [row | {"line": ""} for row in report["constants"]],
        "generator": torch.get_rng_state().tolist(),
    }


def _assert_equal(eager, captured):
    for name, value in eager.items():
        assert captured[name] == value, name


@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_native_calls_have_the_bits_of_the_step(name, optimiser):
    build, batches = PROGRAMS[name]
    eager, _ = _run(build, batches, optimiser, capture=False)
    captured, step = _run(build, batches, optimiser, capture=True)
    _assert_equal(eager, captured)
    assert (step.replayed, step.why_handlers) == (_REPLAYED, "")
    assert step.native > 10


@pytest.mark.parametrize("options", [
    {"sr": False}, {"policy": "fp32", "sr": False}, {"policy": "bf16", "target": "hypothetical"},
    {"policy": "p=f32,c=f16,part=f32"}, {"nanoo": True}, {"sums": "chain"},
    {"found_inf": "status"}, {"policy": {"*": "fp16", "2": "fp32"}}, {"partials": "half"},
], ids=str)
@pytest.mark.parametrize("name", ["perceptron", "decoder", "convolutions"])
def test_in_every_way_of_the_machine(name, options):
    if "partials" in options:
        options = {"policy": "p=f16,c=f16,part=f16"}
    build, batches = PROGRAMS[name]
    eager, _ = _run(build, batches, "adamw", capture=False, **options)
    captured, step = _run(build, batches, "adamw", capture=True, **options)
    _assert_equal(eager, captured)
    assert step.replayed == _REPLAYED
    assert step.native > 0


def test_most_of_a_decoder_runs_below_its_handlers():
    """All but the gradient of the embedding, the loss and what the session is told."""
    _, step = _run(_decoder, _texts, capture=True)
    assert step.native >= 90


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 60000.0, 1e-7])
@pytest.mark.parametrize("name", ["perceptron", "curves", "images", "convolutions"])
def test_numbers_that_need_the_handlers(name, number):
    """A step whose calls have no result goes on by handlers, and the next ones run natively."""
    build, batches = PROGRAMS[name]

    def strange():
        rows = batches()
        for i in (4, 6):
            rows[i][0].reshape(-1)[1] = number
        return rows

    eager, _ = _run(build, strange, capture=False, nanoo=True)
    captured, step = _run(build, strange, capture=True, nanoo=True)
    _assert_equal(eager, captured)
    assert step.replayed == _REPLAYED


def test_maxima_that_the_device_chooses_otherwise_than_torch():
    """Zeros of both signs, NaN and subnormal numbers as the largest of their windows."""
    def pooled():
        return nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9, _CLASSES))

    def strange():
        rows = _images()
        for i, number in zip((4, 6), (-0.0, float("nan")), strict=True):
            rows[i][0][:, :, :2] = -1.0
            rows[i][0][:, :, :2, ::2] = number
        rows[7][0][:] = -(2.0**-20)
        return rows

    eager, _ = _run(pooled, strange, capture=False)
    captured, step = _run(pooled, strange, capture=True)
    _assert_equal(eager, captured)
    assert step.replayed == _REPLAYED


def test_all_of_a_network_of_images_runs_below_its_handlers():
    _, step = _run(_network_of_images, _images, "sgd", capture=True)
    operations = sum(len(kind.ready.tape.entries) for kind in step._kinds.values())
    assert step.native > operations - 8  # what the session is told, and the update


def test_handlers_run_where_numbers_need_them_again_and_again():
    def strange():
        return [(x * float("nan"), classes) for x, classes in _rows()]

    eager, _ = _run(_perceptron, strange, capture=False)
    captured, step = _run(_perceptron, strange, capture=True)
    _assert_equal(eager, captured)
    assert step.native == 0 or step.why_handlers == ""


@pytest.mark.parametrize("every", [1, 3])
def test_parameters_in_other_memory(every):
    def between(i, net, stepping, run):
        if i % every == 0:
            weight = net[0].weight
            run.memory.mark(copy := weight.data.clone(), run.memory.format_of(weight) or
                            fpsim.BINARY32)
            if i > 2:
                weight.data = copy

    eager, _ = _run(_perceptron, _rows, capture=False, between=between)
    captured, step = _run(_perceptron, _rows, capture=True, between=between)
    _assert_equal(eager, captured)
    assert step.replayed
    if every == 1:
        assert "places of tensors" in step.why_handlers


def test_rules_that_change_between_steps():
    """Another policy, as a model that runs between steps brings it, and other random bits."""
    def between(i, net, stepping, run):
        if i == 5:
            run.policy = Policy.parse("p=f16,c=f16,part=f16")
        if i == 6:
            run.device.source = fpsim.Philox(9)

    eager, _ = _run(_perceptron, _rows, capture=False, between=between)
    captured, step = _run(_perceptron, _rows, capture=True, between=between)
    _assert_equal(eager, captured)
    assert (step.replayed, step.why_handlers) == (_REPLAYED, "")


def test_numbers_written_into_parameters_between_steps_are_read():
    def between(i, net, stepping, run):
        if i == 5:
            with torch.no_grad():
                net[0].bias.copy_(net[0].bias * 2)

    eager, _ = _run(_perceptron, _rows, capture=False, between=between)
    captured, _ = _run(_perceptron, _rows, capture=True, between=between)
    _assert_equal(eager, captured)


def test_rates_are_read_in_every_step():
    def between(i, net, stepping, run):
        stepping.param_groups[0]["lr"] = 2.0 ** -(3 + i)

    for optimiser in OPTIMISERS:
        eager, _ = _run(_perceptron, _rows, optimiser, capture=False, between=between)
        captured, step = _run(_perceptron, _rows, optimiser, capture=True, between=between)
        _assert_equal(eager, captured)
        assert step.native


def test_counts_and_observers_run_by_handlers():
    eager, _ = _run(_perceptron, _rows, capture=False, count=True)
    captured, step = _run(_perceptron, _rows, capture=True, count=True)
    _assert_equal(eager, captured)
    assert step.replayed
    assert step.native == 0
    assert "counted" in step.why_handlers


@pytest.mark.parametrize("most", [0, 3000, 1 << 13])
def test_a_step_with_too_many_tensors_goes_on_by_handlers(monkeypatch, most):
    monkeypatch.setattr("ipu.frontends.torch.capture.native_tape._MOST_BYTES", most)
    eager, _ = _run(_decoder, _texts, "adamw", capture=False)
    captured, step = _run(_decoder, _texts, "adamw", capture=True)
    _assert_equal(eager, captured)
    assert (step.replayed, step.native) == (_REPLAYED, 0)
    assert "too much memory" in step.why_handlers


def test_what_leaves_a_step_is_no_memory_of_the_next_one():
    run, net = fpsim.torch.machine("fp16", sr=True), _perceptron()
    stepping = torch.optim.SGD(net.parameters(), lr=0.125)
    results = []

    def step(x, classes):
        stepping.zero_grad()
        out = net(x)
        loss = cross_entropy(out, classes)
        loss.backward()
        stepping.step()
        return {"loss": loss, "out": [out, out[1:], net[2].bias.detach()]}

    with run:
        replayed = run.captured(step)
        for batch in _rows():
            result = replayed(*batch)
            held = [result["loss"], *result["out"], *(p.grad for p in net.parameters())]
            del held[3]  # the bias lives on
            results.append((held, [x.detach().clone() for x in held]))
            whole, part, bias = result["out"]
            assert part.data_ptr() == whole.data_ptr() + whole.stride(0) * 4
            assert bias.data_ptr() == net[2].bias.data_ptr()
    assert replayed.native
    for held, before in results:
        for x, y in zip(held, before, strict=True):
            assert x.detach().numpy().tobytes() == y.numpy().tobytes()


def test_results_and_gradients_may_be_written():
    """What a program does to them changes no later step."""
    def between(i, net, stepping, run):
        for p in net.parameters():
            if p.grad is not None:
                p.grad.fill_(7.0)

    def plain(i, net, stepping, run):
        pass

    eager, _ = _run(_perceptron, _rows, capture=False, between=plain)
    captured, step = _run(_perceptron, _rows, capture=True, between=between)
    assert captured["bits"][:4] == eager["bits"][:4]
    assert step.native


@pytest.mark.parametrize("most", [1 << 28, 0])
def test_an_argument_that_the_step_writes_is_written(monkeypatch, most):
    monkeypatch.setattr("ipu.frontends.torch.capture.native_tape._MOST_BYTES", most)
    run, net = fpsim.torch.machine("fp16", sr=True), nn.Linear(6, 6)
    train = _step_of(net, torch.optim.SGD(net.parameters(), lr=0.125), mse_loss)

    def step(x):
        x.mul_(0.5)
        return train(x, x)

    with run:
        replayed = run.captured(step)
        for x, _ in _rows():
            half = np.float16(x.numpy() * np.float32(1))
            replayed(x)
            assert np.abs(x.numpy()).max() <= np.abs(half).max() * 0.51
    assert replayed.replayed
    reason = "the step writes an argument" if most else "too much memory"
    assert reason in replayed.why_handlers


def test_shapes_have_tapes_of_their_own():
    def batches():
        rows = _rows(10)
        return [(x[:3], c[:3]) if i % 2 else (x, c) for i, (x, c) in enumerate(rows)]

    eager, _ = _run(_perceptron, batches, capture=False)
    captured, step = _run(_perceptron, batches, capture=True)
    _assert_equal(eager, captured)
    assert (step.replayed, step.native > 10) == (5, True)


def test_checked_steps_between_native_ones():
    eager, _ = _run(_decoder, lambda: _texts(11), capture=False)
    captured, step = _run(_decoder, lambda: _texts(11), capture=True, check=3)
    _assert_equal(eager, captured)
    assert step.checked == 2
    assert step.native


def _two_groups(optimiser, **options):
    def build(parameters):
        first, second = (list(parameters)[i : i + 2] for i in (0, 2))
        return optimiser([{"params": first}, {"params": second}], **options)

    return build


@pytest.mark.parametrize(("build", "key", "value"), [
    (_two_groups(torch.optim.SGD, lr=0.125, momentum=0.5), "weight_decay", 0.125),
    (_two_groups(torch.optim.SGD, lr=0.125, momentum=0.5), "momentum", 0.0),
    (_two_groups(torch.optim.SGD, lr=0.125), "momentum", 0.5),
    (_two_groups(torch.optim.SGD, lr=0.125, momentum=0.5), "dampening", 1.0),
    (_two_groups(torch.optim.SGD, lr=0.125, momentum=0.5), "lr", 0.0),
    (_two_groups(torch.optim.Rprop, lr=2.0**-6), "etas", (0.5, 1.5)),
    (_two_groups(torch.optim.Rprop, lr=2.0**-6), "step_sizes", (2.0**-7, 2.0**-5)),
    (_two_groups(torch.optim.AdamW, lr=2.0**-6), "weight_decay", 0.0),
], ids=lambda x: str(x) if isinstance(x, (str, float, tuple)) else "")
def test_numbers_of_the_first_of_two_groups(monkeypatch, build, key, value):
    """The second group draws behind the first one, whose draws depend on its numbers."""
    def between(i, net, stepping, run):
        if i == 6:
            stepping.param_groups[0][key] = value

    monkeypatch.setitem(OPTIMISERS, "groups", build)
    eager, _ = _run(_perceptron, lambda: _rows(10), "groups", capture=False, between=between)
    captured, step = _run(_perceptron, lambda: _rows(10), "groups", capture=True, between=between)
    _assert_equal(eager, captured)
    assert step.replayed


def test_a_step_that_reads_a_rate_beside_its_optimiser_runs_eagerly_with_another():
    outcomes = []
    for capture in (False, True):
        torch.manual_seed(7)
        run, net = fpsim.torch.machine("fp16", sr=True, seed=2), _perceptron()
        stepping = torch.optim.SGD(net.parameters(), lr=0.125)
        step = _step_of(net, stepping, lambda out, classes, stepping=stepping: (
            cross_entropy(out, classes) * stepping.param_groups[0]["lr"]))
        losses = []
        with run, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            call = run.captured(step) if capture else step
            for i, batch in enumerate(_rows()):
                if i == 5:
                    stepping.param_groups[0]["lr"] = 0.25
                losses.append(call(*batch).detach())
        outcomes.append(_outcome(run, net, stepping, losses, []))
    _assert_equal(*outcomes)
    assert (call.replayed, call.eager) == (2, 6)
    assert "reads numbers of its parameter groups: operation" in call.reason
    assert ["runs eagerly" in str(w.message) for w in told] == [True]


def test_a_step_that_reads_a_rate_where_nobody_sees_it_stops_the_program():
    """By a name that is put together: the comparison finds it, and nothing tells why."""
    run, net = fpsim.torch.machine("fp16", sr=True), _perceptron()
    stepping = torch.optim.SGD(net.parameters(), lr=0.125)
    step = _step_of(net, stepping, lambda out, classes: (
        cross_entropy(out, classes) * getattr(stepping, "param_" + "groups")[0]["lr"]))
    with run:
        replayed = run.captured(step)
        for batch in _rows(4):
            replayed(*batch)
        stepping.param_groups[0]["lr"] = 0.25
        with pytest.raises(RuntimeError, match="another one now"):
            replayed(*batch)


@pytest.mark.parametrize("rows", [
    lambda x: x[:1].expand(4, 6), lambda x: x.flatten()[:9].clone().unfold(0, 6, 1),
    lambda x: x[:, :1].expand(4, 6), lambda x: x.t().contiguous().t(),
], ids=["one row", "windows", "one column", "transposed"])
def test_arguments_that_repeat_their_memory(rows):
    def batches():
        return [(rows(x), classes) for x, classes in _rows()]

    eager, _ = _run(_perceptron, batches, capture=False)
    captured, step = _run(_perceptron, batches, capture=True)
    _assert_equal(eager, captured)
    assert step.native


@pytest.mark.parametrize("is_wide", [False, True])
@pytest.mark.parametrize("order", [range(_STEPS), [3, 0, 7, 7, 1, 2, 5, 4]], ids=["rows", "mixed"])
def test_batches_are_cut_from_data(is_wide, order):
    """One tape, wherever in the data its batches lie."""
    def batches():
        data, classes = (torch.cat(column) for column in zip(*_rows(), strict=True))
        data = torch.cat([data, data], 1)[:, 3:9] if is_wide else data
        return [(data[4 * i : 4 * i + 4], classes[4 * i : 4 * i + 4]) for i in order]

    eager, _ = _run(_perceptron, batches, capture=False)
    captured, step = _run(_perceptron, batches, capture=True)
    _assert_equal(eager, captured)
    assert (step.replayed, step.why_handlers) == (_REPLAYED, "")
    assert step.native > 10


def test_views_that_a_step_places_itself_keep_handlers():
    """Their places are counted from where the data begin, not the batch."""
    def net():
        class Placed(nn.Module):
            def forward(self, x):
                return x + x.as_strided((4, 6), (6, 1), 6)

        return nn.Sequential(Placed(), *_perceptron())

    def batches():
        data, classes = (torch.cat(column) for column in zip(*_rows(), strict=True))
        return [(data[4 * i : 4 * i + 4], classes[4 * i : 4 * i + 4]) for i in range(_STEPS)]

    eager, _ = _run(net, batches, capture=False)
    captured, step = _run(net, batches, capture=True)
    _assert_equal(eager, captured)
    assert step.native == 0
    assert step.replayed == 0 or "as_strided" in step.why_handlers


@pytest.mark.parametrize("begin", [0, 4])
def test_an_argument_leaves_a_step_as_the_programs_own(begin):
    run, net = fpsim.torch.machine("fp16", sr=True), _perceptron()
    stepping = torch.optim.SGD(net.parameters(), lr=0.125)

    def step(x, classes):
        stepping.zero_grad()
        cross_entropy(net(x), classes).backward()
        stepping.step()
        return x, x[1:], classes.view(2, 2)

    with run:
        replayed = run.captured(step)
        for x, classes in _rows():
            x, classes = (torch.cat([y, y])[begin : begin + 4] for y in (x, classes))
            same, part, pairs = replayed(x, classes)
            assert same is x
            assert part.data_ptr() == x.data_ptr() + 6 * 4
            assert part.shape == (3, 6)
            assert pairs.data_ptr() == classes.data_ptr()
    assert replayed.native


@pytest.mark.parametrize("wrong", [_CLASSES, 10**6, -1, -_CLASSES])
@pytest.mark.parametrize("capture", [False, True])
def test_a_class_that_is_none_stops_the_step(capture, wrong):
    def strange():
        rows = _rows()
        rows[5][1][2] = wrong
        return rows

    with pytest.raises(IndexError, match=f"Target {wrong} is out of bounds"):
        _run(_perceptron, strange, capture=capture)


def test_after_a_replayed_step_that_was_stopped_none_runs():
    run, net = fpsim.torch.machine("fp16", sr=True), _perceptron()
    step = _step_of(net, torch.optim.SGD(net.parameters(), lr=0.125))
    with run:
        replayed = run.captured(step)
        for x, classes in _rows(5):
            replayed(x, classes)
        before = [p.detach().clone() for p in net.parameters()]
        with pytest.raises(IndexError):
            replayed(x, classes + _CLASSES)
        with pytest.raises(RuntimeError, match="stopped by IndexError"):
            replayed(x, classes)
    for p, then in zip(net.parameters(), before, strict=True):
        assert p.detach().numpy().tobytes() == then.numpy().tobytes()
