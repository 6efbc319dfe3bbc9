"""Captured steps: what replay may get wrong in silence, beside the same program run eagerly.

Each program is one that capturing is known to break elsewhere: its parameters, states, losses,
flags, cycles, operations and torch's generator are equal, whether the step was replayed or refused
(differential, law).

Source    issues of PyTorch 84614 (dropout), 114844 (attributes), 76368 (Adam), 162504
          (checkpoints); burn 5779 (rates); tinygrad 13701 (a list of footguns).
"""

from __future__ import annotations

import ctypes
import random
import warnings
from collections import deque
from weakref import ref

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.functional import dropout, mse_loss  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import fpsim.torch  # noqa: E402

_CALLS = 9
REPLAYED = ""
PROGRAMS: dict[str, tuple] = {}


def program(expected: str = REPLAYED, **options):
    """Enter a program: what is expected is a part of the reason why it is refused, or replay.

    It gets a function that captures a step, and gives the modules, the optimisers and the losses.
    """

    def enter(function):
        PROGRAMS[function.__name__.lstrip("_")] = function, expected, options
        return function

    return enter


def _batches(n: int = _CALLS, rows: int = 4):
    source = torch.Generator().manual_seed(5)
    return [torch.randn(rows, 6, generator=source) for _ in range(n)]


def _net():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 6))


def _parts(optimiser=torch.optim.SGD, net=None, **options):
    net = net or _net()
    usual = {"lr": 0.125} | ({"momentum": 0.5} if optimiser is torch.optim.SGD else {})
    options = usual | options
    return net, optimiser(net.parameters(), **options)


def _step_of(net, optimiser, forward=None, *, to_none=True):
    def step(x):
        optimiser.zero_grad(set_to_none=to_none)
        loss = mse_loss((forward or net)(x), x)
        loss.backward()
        optimiser.step()
        return loss

    return step


def _plain(capture, between=lambda i, net, optimiser: None, batches=None, net=None, **options):
    """Steps with something between them."""
    net, optimiser = _parts(net=net, **options)
    replayed, losses = capture(_step_of(net, optimiser)), []
    for i, x in enumerate(batches or _batches()):
        between(i, net, optimiser)
        losses.append(replayed(x).detach())
    return [net], [optimiser], losses


# Replayed ---------------------------------------------------------------------------------------


@program()
def _descent(capture):
    return _plain(capture)


@program()
def _descent_without_momentum(capture):
    return _plain(capture, momentum=0.0)


@program()
def _adam(capture):
    return _plain(capture, optimiser=torch.optim.Adam, lr=2.0**-6, eps=2.0**-10)


@program()
def _adamw_in_lists(capture):
    options = {"lr": 2.0**-6, "eps": 2.0**-10, "foreach": True}
    return _plain(capture, optimiser=torch.optim.AdamW, **options)


@program()
def _rmsprop(capture):
    return _plain(capture, optimiser=torch.optim.RMSprop, lr=2.0**-6, eps=2.0**-10)


@program()
def _scheduler_between_steps(capture):
    net, optimiser = _parts()
    scheduler = torch.optim.lr_scheduler.StepLR(optimiser, 1, gamma=0.75)
    replayed, losses = capture(_step_of(net, optimiser)), []
    for x in _batches():
        losses.append(replayed(x).detach())
        scheduler.step()
    return [net], [optimiser], losses


@program()
def _decay_and_betas_between_steps(capture):
    def between(i, net, optimiser):
        optimiser.param_groups[0].update(weight_decay=i / 64, betas=(0.5 + i / 64, 0.75))

    return _plain(capture, between, optimiser=torch.optim.AdamW, lr=2.0**-6, eps=2.0**-10)


@program()
def _dropout(capture):
    return _plain(capture, net=nn.Sequential(nn.Linear(6, 5), nn.Dropout(0.5), nn.Linear(5, 6)))


@program()
def _last_short_batch(capture):
    return _plain(capture, batches=[*_batches(7), *_batches(1, rows=3), *_batches(2)])


@program()
def _gradients_of_zeros(capture):
    net, optimiser = _parts()
    replayed = capture(_step_of(net, optimiser, to_none=False))
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program()
def _gradients_that_are_none_in_some_steps(capture):
    def between(i, net, optimiser):
        if i % 4 == 3:
            net[0].weight.grad = None

    net, optimiser = _parts()
    replayed, losses = capture(_step_of(net, optimiser, to_none=False)), []
    for i, x in enumerate(_batches()):
        between(i, net, optimiser)
        losses.append(replayed(x).detach())
    return [net], [optimiser], losses


@program()
def _parameter_without_gradient(capture):
    net, _ = _parts()
    unused = nn.Linear(2, 2)
    optimiser = torch.optim.SGD([*net.parameters(), *unused.parameters()], lr=0.125, momentum=0.5)
    replayed = capture(_step_of(net, optimiser))
    return [net, unused], [optimiser], [replayed(x).detach() for x in _batches()]


@program()
def _checkpointed_regions(capture):
    net, optimiser = _parts()

    def forward(x):
        return net[2](checkpoint(lambda y: net[1](net[0](y)), x, use_reentrant=False))

    replayed = capture(_step_of(net, optimiser, forward))
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program()
def _micro_batches_in_a_step(capture):
    net, optimiser = _parts()

    def step(x):
        optimiser.zero_grad()
        for part in x.chunk(2):
            loss = mse_loss(net(part), part)
            loss.backward()
        optimiser.step()
        return loss

    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program()
def _two_optimisers(capture):
    net, optimiser = _parts()
    other, second = _parts(torch.optim.Adam, lr=2.0**-6, eps=2.0**-10)

    def step(x):
        first = _step_of(net, optimiser)(x)
        return first, _step_of(other, second, lambda y: other(net(y).detach()))(x)

    replayed = capture(step)
    losses = [loss.detach() for x in _batches() for loss in replayed(x)]
    return [net, other], [optimiser, second], losses


@program()
def _clipped_gradients(capture):
    net, optimiser = _parts()

    def step(x):
        optimiser.zero_grad()
        loss = mse_loss(net(x), x)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimiser.step()
        return loss

    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program()
def _statistics_of_batches(capture):
    net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 6))
    return _plain(capture, net=net)


@program()
def _evaluations_between_steps(capture):
    losses = []

    def between(i, net, optimiser):
        with torch.no_grad():
            losses.append(mse_loss(net(x := _batches(1)[0]), x))

    nets, optimisers, others = _plain(capture, between)
    return nets, optimisers, losses + others


@program()
def _constant_made_in_the_step(capture):
    net, optimiser = _parts()
    step = _step_of(net, optimiser, lambda x: net(x) * torch.tensor(0.5) + torch.arange(6) / 8)
    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program()
def _weights_written_between_steps(capture):
    def between(i, net, optimiser):
        if i == 6:
            with torch.no_grad():
                net[0].weight.copy_(torch.full((5, 6), 0.25))

    return _plain(capture, between)


@program()
def _batch_by_name(capture):
    net, optimiser = _parts()

    def step(*, batch, scale=1.0):
        loss = _step_of(net, optimiser, lambda x: net(x) * scale)(batch["x"][0])
        return {"loss": loss, "rows": 4}

    replayed = capture(step)
    results = [replayed(batch={"x": [x]}, scale=0.5) for x in _batches()]
    return [net], [optimiser], [torch.tensor(r["rows"] * 1.0) + r["loss"].detach() for r in results]


# Looked at before each replay --------------------------------------------------------------------


@program()
def _number_of_a_module_between_steps(capture):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.scale = _net(), 1.0

        def forward(self, x):
            return self.net(x) * self.scale

    def between(i, net, optimiser):
        if i == 5:
            net.scale = 0.5

    return _plain(capture, between, net=Scaled())


@program()
def _swapped_equal_layers(capture):
    def between(i, net, optimiser):
        if i == 5:
            layers = net._modules
            layers["0"], layers["1"] = layers["1"], layers["0"]

    net = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.ReLU())
    return _plain(capture, between, net=net)


@program()
def _changed_hook(capture):
    def between(i, net, optimiser):
        if i == 5:
            net[0].register_forward_hook(lambda module, arguments, result: result * 0.5)

    return _plain(capture, between)


@program()
def _hook_of_a_gradient(capture):
    def between(i, net, optimiser):
        if i == 5:
            net[0].weight.register_hook(lambda gradient: gradient * 0.5)

    return _plain(capture, between)


@program()
def _hook_whose_number_changes(capture):
    scale = [1.0]

    def between(i, net, optimiser):
        if i == 0:
            net[0].register_forward_hook(lambda module, arguments, result: result * scale[0])
        if i == 5:
            scale[0] = 0.5

    return _plain(capture, between)


@program()
def _frozen_parameter(capture):
    def between(i, net, optimiser):
        if i == 5:
            net[0].weight.requires_grad_(False)

    return _plain(capture, between)


@program()
def _training_mode(capture):
    def between(i, net, optimiser):
        net.train(i < 5)

    return _plain(capture, between, net=nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)))


@program()
def _replaced_forward(capture):
    def between(i, net, optimiser):
        if i == 5:
            net[1].forward = lambda x: x * 0.5

    return _plain(capture, between)


@program()
def _replaced_method_of_a_class(capture):
    class Halved(nn.Module):
        def forward(self, x):
            return x * 0.5

    def between(i, net, optimiser):
        if i == 5:
            Halved.forward = lambda self, x: x * 0.25

    return _plain(capture, between, net=nn.Sequential(nn.Linear(6, 6), Halved()))


@program()
def _switch_of_an_optimiser(capture):
    def between(i, net, optimiser):
        if i == 5:
            optimiser.param_groups[0]["maximize"] = True

    return _plain(capture, between)


@program()
def _group_added(capture):
    extra = nn.Linear(6, 6)

    def between(i, net, optimiser):
        if i == 5:
            net.append(extra)
            optimiser.add_param_group({"params": extra.parameters(), "lr": 0.25})

    return _plain(capture, between)


@program()
def _state_loaded(capture):
    def between(i, net, optimiser):
        if i == 5:
            optimiser.load_state_dict(optimiser.state_dict())
            for state in optimiser.state.values():
                state["momentum_buffer"].zero_()

    return _plain(capture, between)


@program()
def _memory_of_a_parameter(capture):
    def between(i, net, optimiser):
        if i == 5:
            net[0].weight.data = torch.full((6, 5), 0.25).t()

    return _plain(capture, between)


@program()
def _rate_that_torchs_own_operations_take(capture):
    """With `capturable` no row computes the step: the rate is an argument of operations."""

    def between(i, net, optimiser):
        optimiser.param_groups[0]["lr"] = 2.0 ** -(6 if i < 6 else 7)

    options = {"optimiser": torch.optim.Adam, "eps": 2.0**-10, "amsgrad": True}
    return _plain(capture, between, **options)


@program()
def _mixed_precision_between_steps(capture):
    net, optimiser = _parts()
    replayed, losses = capture(_step_of(net, optimiser)), []
    for i, x in enumerate(_batches()):
        with torch.autocast("cpu", torch.float16, enabled=i > 5):
            losses.append(replayed(x).detach())
    return [net], [optimiser], losses


@program()
def _gradients_kept_by_the_program(capture):
    net, optimiser = _parts()

    def step(x):
        loss = mse_loss(net(x), x)
        loss.backward()
        optimiser.step()
        return loss

    replayed, losses = capture(step), []
    for i, x in enumerate(_batches()):
        if i not in (3, 7):
            optimiser.zero_grad()
        losses.append(replayed(x).detach())
    return [net], [optimiser], losses


@program()
def _number_as_argument(capture):
    net, optimiser = _parts()

    def step(x, scale):
        return _step_of(net, optimiser, lambda y: net(y) * scale)(x)

    replayed = capture(step)
    scales = [1.0] * 4 + [0.5] * 4 + [1.0]
    losses = [replayed(x, s).detach() for x, s in zip(_batches(), scales, strict=True)]
    return [net], [optimiser], losses


@program()
def _arguments_that_share_memory(capture):
    net, optimiser = _parts()

    def step(x, y):
        x.mul_(0.5)
        return _step_of(net, optimiser, lambda z: net(z) + y)(x)

    replayed, losses = capture(step), []
    for i, x in enumerate(_batches()):
        losses.append(replayed(x, x if i in (4, 8) else x.clone()).detach())
    return [net], [optimiser], losses


@program()
def _argument_that_is_a_parameter_s_memory(capture):
    net, optimiser = _parts(net=nn.Linear(6, 6))
    replayed, losses = capture(_step_of(net, optimiser)), []
    for i, x in enumerate(_batches(rows=6)):
        losses.append(replayed(net.weight.data if i == 5 else x).detach())
    return [net], [optimiser], losses


# Refused ----------------------------------------------------------------------------------------


@program("last_epoch")
def _scheduler_in_the_step(capture):
    net, optimiser = _parts()
    scheduler = torch.optim.lr_scheduler.StepLR(optimiser, 6, gamma=0.5)

    def step(x):
        loss = _step_of(net, optimiser)(x)
        scheduler.step()
        return loss

    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("reads a number")
def _branch_on_the_loss(capture):
    net, optimiser = _parts()

    def step(x):
        optimiser.zero_grad()
        loss = mse_loss(net(x), x)
        (loss * 0.5 if loss > 1.0 else loss).backward()
        optimiser.step()
        return loss

    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("reads the numbers")
def _numbers_through_numpy(capture):
    net, optimiser = _parts()
    step = _step_of(net, optimiser, lambda x: net(x) * float(x.numpy()[0, 0] > 0))
    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("shape depends on numbers")
def _shape_that_depends_on_numbers(capture):
    net, optimiser = _parts()
    step = _step_of(net, optimiser, lambda x: net(x) * (x > 0).nonzero().shape[0] ** -0.5)
    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("net.last")
def _attribute_set_in_forward(capture):
    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = nn.Linear(6, 6), torch.zeros(4, 6)

        def forward(self, x):
            result = self.layer(x + self.last)
            self.last = result.detach()
            return result

    return _plain(capture, net=Remembering())


@program("net.calls")
def _counter_in_forward(capture):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.calls = nn.Linear(6, 6), 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x) * (0.5 if self.calls > 6 else 1.0)

    return _plain(capture, net=Counting())


@program("losses")
def _list_of_losses(capture):
    (net, optimiser), losses = _parts(), []

    def step(x):
        losses.append(_step_of(net, optimiser)(x).detach())

    replayed = capture(step)
    for x in _batches():
        replayed(x)
    return [net], [optimiser], losses


@program("queue")
def _queue_in_the_step(capture):
    (net, optimiser), queue = _parts(), deque([1.0] * 6 + [0.5] * 6)
    replayed = capture(_step_of(net, optimiser, lambda x: net(x) * queue.popleft()))
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("take")
def _method_of_a_list(capture):
    net, optimiser = _parts()
    take = ([0.5] * 6 + [1.0] * 6).pop
    replayed = capture(_step_of(net, optimiser, lambda x: net(x) * take()))
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("numbers")
def _numbers_of_bytes(capture):
    (net, optimiser), numbers = _parts(), bytearray(1)

    def forward(x):
        numbers[0] += 1
        return net(x) * (1.0 if numbers[0] < 6 else 0.5)

    replayed = capture(_step_of(net, optimiser, forward))
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("nothing which it names")
def _parameter_that_nothing_holds(capture):
    (net, optimiser), extra = _parts(), torch.full((6,), 0.5, requires_grad=True)
    second, hidden = torch.optim.SGD([extra], lr=0.125), ctypes.py_object(extra)
    replayed = capture(_step_of(net, optimiser, lambda x: net(x) * hidden.value))
    losses = []
    for x in _batches():
        losses.append(replayed(x).detach())
        second.step()
        second.zero_grad()
    return [net], [optimiser], [*losses, extra.detach()]


@program()
def _object_by_a_weak_reference(capture):
    (net, optimiser), scaled = _parts(), nn.Identity()
    scaled.scale = 1.0
    reference = ref(scaled)
    replayed = capture(_step_of(net, optimiser, lambda x: net(x) * reference().scale))
    losses = []
    for i, x in enumerate(_batches()):
        scaled.scale = 1.0 if i < 5 else 0.5
        losses.append(replayed(x).detach())
    return [net], [optimiser], losses


@program("iterator")
def _iterator_in_the_step(capture):
    (net, optimiser), data = _parts(), iter(_batches())
    replayed = capture(lambda: _step_of(net, optimiser)(next(data)))
    return [net], [optimiser], [replayed().detach() for _ in range(_CALLS)]


@program()
def _batch_by_a_generator_of_torch(capture):
    """A generator of the program's draws in every replay."""
    (net, optimiser), source = _parts(), torch.Generator().manual_seed(1)
    replayed = capture(lambda: _step_of(net, optimiser)(torch.randn(4, 6, generator=source)))
    return [net], [optimiser], [replayed().detach() for _ in range(_CALLS)]


@program()
def _constant_written_in_place(capture):
    net, optimiser = _parts()
    step = _step_of(net, optimiser, lambda x: net(x) * torch.tensor([0.5] * 6).mul_(0.5))
    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("may read the array")
def _batch_of_an_array(capture):
    net, optimiser = _parts()
    data, order = np.random.default_rng(3).normal(size=(_CALLS, 4, 6)).astype("f4"), [0]
    replayed = capture(lambda: _step_of(net, optimiser)(torch.from_numpy(data[order[0]])))
    return [net], [optimiser], [replayed().detach() for order[0] in range(_CALLS)]


@program()
def _small_array_between_steps(capture):
    (net, optimiser), scale = _parts(), np.ones(1)
    replayed, losses = capture(_step_of(net, optimiser, lambda x: net(x) * float(scale[0]))), []
    for i, x in enumerate(_batches()):
        scale[0] = 1.0 if i < 5 else 0.5
        losses.append(replayed(x).detach())
    return [net], [optimiser], losses


@program("give it as an argument")
def _batch_in_a_closure(capture):
    net, optimiser = _parts()
    (batch, *others), losses = _batches(14), []
    replayed = capture(lambda: _step_of(net, optimiser)(batch))
    while others:
        losses.append(replayed().detach())
        batch = others.pop()
    return [net], [optimiser], losses


@program("Python's random")
def _random_of_python(capture):
    net, optimiser = _parts()
    step = _step_of(net, optimiser, lambda x: net(x) if random.random() < 0.9 else net(x) * 0.5)
    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("numpy.random")
def _random_of_numpy(capture):
    net, optimiser = _parts()
    step = _step_of(net, optimiser, lambda x: net(x) if np.random.rand() < 2 else x)  # noqa: NPY002
    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("torch.manual_seed")
def _seed_in_the_step(capture):
    net, optimiser = _parts()

    def forward(x):
        torch.manual_seed(3)
        return dropout(net(x), 0.5)

    replayed = capture(_step_of(net, optimiser, forward))
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program()
def _update_by_hand(capture):
    net, optimiser = _parts()
    average = [p.detach().clone() for p in net.parameters()]

    def step(x):
        loss = _step_of(net, optimiser)(x)
        with torch.no_grad():
            for mean, p in zip(average, net.parameters(), strict=True):
                mean.lerp_(p, 0.25)
        return loss

    replayed = capture(step)
    return [net, nn.ParameterList(average)], [optimiser], [replayed(x).detach() for x in _batches()]


@program("torch.autograd.grad")
def _gradients_by_hand(capture):
    net, optimiser = _parts()

    def step(x):
        loss = mse_loss(net(x), x)
        parameters = list(net.parameters())
        for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            p.grad = g
        optimiser.step()
        return loss

    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("reads a number", found_inf="status")
def _gradient_scaler(capture):
    (net, optimiser), scaler = _parts(), torch.amp.GradScaler("cpu", init_scale=8.0)

    def step(x):
        optimiser.zero_grad()
        loss = mse_loss(net(x), x)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss

    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("block without gradients")
def _evaluation_in_the_step(capture):
    net, optimiser = _parts()

    def step(x):
        with torch.no_grad():
            target = net(x)
        return _step_of(net, optimiser, lambda y: net(y) + target)(x)

    replayed = capture(step)
    return [net], [optimiser], [replayed(x).detach() for x in _batches()]


@program("part of the step")
def _steps_over_several_calls(capture):
    net, optimiser = _parts()

    def step(x, is_last):
        loss = mse_loss(net(x), x)
        loss.backward()
        if is_last:
            optimiser.step()
            optimiser.zero_grad()
        return loss

    replayed = capture(step)
    losses = [replayed(x, i % 2 == 1).detach() for i, x in enumerate(_batches(10))]
    return [net], [optimiser], losses


# Beside each other -------------------------------------------------------------------------------


def _outcome(function, capture, options):
    """All that a program leaves behind."""
    torch.manual_seed(11)
    random.seed(2)
    run = fpsim.torch.machine("fp16", **options)
    steps = []

    def captured(step):
        steps.append(run.captured(step, check=4) if capture else step)
        return steps[-1]

    with warnings.catch_warnings(), run:
        warnings.simplefilter("ignore")
        nets, optimisers, losses = function(captured)
        gradients = [p.grad for net in nets for p in net.parameters()]
    tensors = [x for net in nets for x in (*net.parameters(), *net.buffers())] + losses
    tensors += [x for o in optimisers for p in o.state for x in o.state[p].values()
                if isinstance(x, torch.Tensor)]
    bits = [x.detach().numpy().tobytes() for x in tensors]
    bits += [None if g is None else g.detach().numpy().tobytes() for g in gradients]
    device = run.device
    facts = (
        device.status_word, device.vector_cycles, run.step, torch.get_rng_state().tolist(),
        [int(context.flags) for context in device._contexts.values()],
        {kind: dict(calls) for kind, calls in run.account._calls.items()},
        {kind: dict(elements) for kind, elements in run.account._elements.items()},
        run.account.summary()["constants"], random.getstate(),
    )
    counters = run.report()["layers"] if options.get("count") else None
    return (bits, facts, counters), steps[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_captured_step_has_the_bits_of_the_step_or_is_refused(name):
    function, expected, others = PROGRAMS[name]
    options = {"sr": True, "seed": 4, **others}
    eager, _ = _outcome(function, False, options)
    captured, step = _outcome(function, True, options)
    assert captured == eager
    if expected:
        assert step.replayed == 0
        assert expected in step.reason
    else:
        assert step.replayed > 0


@pytest.mark.parametrize("name", ["adam", "dropout", "clipped_gradients", "statistics_of_batches"])
def test_counts_of_a_replayed_step_are_those_of_the_step(name):
    options = {"sr": True, "count": True}
    eager, _ = _outcome(PROGRAMS[name][0], False, options)
    captured, step = _outcome(PROGRAMS[name][0], True, options)
    assert captured == eager
    assert step.replayed > 0


@pytest.mark.parametrize("policy", ["fp32", "bf16"])
def test_a_step_is_replayed_in_other_formats(policy):
    outcomes = []
    for capture in (False, True):
        torch.manual_seed(1)
        net, optimiser = _parts()
        step = _step_of(net, optimiser)
        target = "hypothetical" if policy == "bf16" else None
        with fpsim.torch.machine(policy, target=target) as run:
            call = run.captured(step) if capture else step
            outcomes.append([call(x).item() for x in _batches()])
    assert outcomes[0] == outcomes[1]
    assert call.replayed == _CALLS - 3


def test_nothing_is_replayed_where_exceptions_stop_the_program():
    net, optimiser = _parts()
    with fpsim.torch.machine("fp16", traps=True) as run:
        replayed = run.captured(_step_of(net, optimiser))
        for x in _batches(5):
            replayed(x)
    assert replayed.replayed == 0
    assert "exceptions stop" in replayed.reason


def test_a_step_that_has_changed_unseen_is_found_by_the_comparison():
    """What no look at Python's memory shows: a number that a C extension holds."""
    (net, optimiser), hidden = _parts(), ctypes.c_double(1.0)
    step = _step_of(net, optimiser, lambda x: net(x) * hidden.value)
    with fpsim.torch.machine("fp16") as run:
        replayed = run.captured(step, check=3)
        for x in _batches(4):
            replayed(x)
        assert replayed.replayed == 1
        hidden.value = 0.5
        replayed(_batches(1)[0])
        with pytest.raises(RuntimeError, match=r"another one now: .*0\.5 in the next"):
            replayed(_batches(1)[0])


def test_a_refusal_is_told_once():
    net, optimiser = _parts()
    step = _step_of(net, optimiser, lambda x: net(x) * x.sum().item())
    with fpsim.torch.machine("fp16") as run, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        replayed = run.captured(step)
        for x in _batches():
            replayed(x)
    (warning,) = told
    assert "runs eagerly: the step reads a number" in str(warning.message)


def test_wrong_arguments_are_refused_with_what_is_allowed():
    run = fpsim.torch.machine("fp16")
    with pytest.raises(TypeError, match="step=3 cannot be called"):
        run.captured(3)
    with pytest.raises(ValueError, match="check=0 is not a whole number of at least 1"):
        run.captured(print, check=0)
    with pytest.raises(RuntimeError, match="inside of its session"):
        run.captured(print)()
