"""Four and four steps in two processes are eight steps, bit for bit (law, golden)."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import textwrap

import pytest

from fpsim import BINARY16, BINARY32
from tests.ipu.frontends.torch.framework import images, machine, mlp, torch
from tests.tiers import pick

resuming = pytest.importorskip("ipu.frontends.torch.resuming")
WAYS = {
    "f16": {"policy": "f16", "sr": True},
    "mixed": {"policy": "mixed", "sr": True},
    "layered": {"policy": {"*": "f16", "0": "f32", "2": "f32"}, "sr": True},
    "e5m6": {"policy": "e5m6", "sr": True, "target": "hypothetical"},
    "to nearest": {"policy": {"*": "f16", "0": "f32"}},
}
OPTIMISERS = {
    "AdamW": (torch.optim.AdamW, {"lr": 0.01, "eps": 1e-4}),
    "SGD": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
}


def steps(net, optimiser, shape, numbers):
    """Losses of these steps, each with data of its own."""
    losses = []
    for i in numbers:
        generator = torch.Generator().manual_seed(i)
        x = torch.randn(4, *shape, generator=generator)
        y = torch.randint(0, 3, (4,), generator=generator)
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def bits(net):
    return {name: x.numpy().tobytes() for name, x in net.state_dict().items()}


def saved(**state):
    """What a file gives back, read without trust."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def changed(options):
    """Options of a session whose device keeps states of the optimiser in binary32."""
    from ipu.run.changes import Changes

    return options | {"changes": Changes(wide_states=True)}


@pytest.mark.parametrize("make", [(mlp, (6,)), (images, (1, 8, 8))], ids=["mlp", "images"])
@pytest.mark.parametrize("way", [*WAYS, "wide states"])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_a_resumed_training_has_the_bits_of_one_that_was_not_interrupted(make, way, name):
    make, shape = make
    options = changed(WAYS["f16"]) if way == "wide states" else WAYS[way]
    optimiser, arguments = OPTIMISERS[name]

    net = make()
    with machine(**options):
        losses = steps(net, optimiser(net.parameters(), **arguments), shape, range(8))
    whole = bits(net)

    net = make()
    with machine(**options):
        trained = optimiser(net.parameters(), **arguments)
        first = steps(net, trained, shape, range(4))
        state = saved(model=net.state_dict(), optimizer=trained.state_dict())

    net = make()
    with machine(**options) as session:
        net.load_state_dict(state["model"])
        trained = optimiser(net.parameters(), **arguments)
        trained.load_state_dict(state["optimizer"])
        second = steps(net, trained, shape, range(4, 8))
    assert first + second == losses
    assert bits(net) == whole
    report = session.report()
    assert (report["steps"], report["first_step"], session.step) == (4, 4, 8)
    assert "4 steps from step 4 on" in str(report)


def test_a_step_from_outside_does_the_same_for_a_program_without_a_state():
    """SGD without momentum has no state that would have to be saved."""
    net = mlp()
    with machine(**WAYS["mixed"]):
        steps(net, torch.optim.SGD(net.parameters(), lr=0.1), (6,), range(8))
    whole, net = bits(net), mlp()
    for first in (0, 4):
        with machine(**WAYS["mixed"], step=first):
            steps(net, torch.optim.SGD(net.parameters(), lr=0.1), (6,), range(first, first + 4))
    assert bits(net) == whole


def test_torch_itself_loads_the_state():
    net = mlp()
    with machine("mixed", sr=True):
        trained = torch.optim.AdamW(net.parameters())
        steps(net, trained, (6,), range(2))
        state = saved(optimizer=trained.state_dict())["optimizer"]
    assert state[resuming.KEY]["step"] == 2
    native = torch.optim.AdamW(net.parameters())
    native.load_state_dict(state)
    assert set(native.state_dict()) == {"state", "param_groups"}
    assert native.state[net[0].weight]["step"] == 2


def test_nothing_is_added_where_nothing_depends_on_it():
    net = mlp()
    with machine():
        assert set(torch.optim.Adam(net.parameters()).state_dict()) == {"state", "param_groups"}


def test_a_session_never_goes_back():
    """A program that resets its optimiser to an earlier state draws no bits twice."""
    net = mlp()
    with machine("mixed", sr=True) as session:
        trained = torch.optim.AdamW(net.parameters())
        early = trained.state_dict()
        steps(net, trained, (6,), range(3))
        trained.load_state_dict(early)
        assert session.step == 3


def test_another_way_takes_the_numbers_and_not_the_formats():
    net = mlp()
    with machine("f16", sr=True):
        trained = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        steps(net, trained, (6,), range(2))
        state = trained.state_dict()
    for policy, expected in (("f16", BINARY16), ("mixed", BINARY32)):
        with machine(policy, sr=True) as session:
            fresh = mlp()
            trained = torch.optim.SGD(fresh.parameters(), lr=0.1, momentum=0.9)
            trained.load_state_dict(saved(state=state)["state"])
            steps(fresh, trained, (6,), [2])
            buffer = trained.state[fresh[0].weight]["momentum_buffer"]
            assert session.memory.format_of(buffer) in (expected, BINARY16)


def test_another_seed_is_told():
    net = mlp()
    with machine("mixed", sr=True, seed=1):
        trained = torch.optim.SGD(net.parameters(), lr=0.1)
        steps(net, trained, (6,), range(2))
        state = trained.state_dict()
    with machine("mixed", sr=True, seed=2), pytest.warns(RuntimeWarning, match="seed 1, this one"):
        torch.optim.SGD(net.parameters(), lr=0.1).load_state_dict(state)


@pytest.mark.parametrize(("step", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError)])
def test_bad_steps(step, error):
    with pytest.raises(error, match=f"step={step!r}"):
        machine(step=step)


def test_methods_are_those_of_torch_afterwards():
    optimiser = torch.optim.Optimizer
    before = optimiser.state_dict, optimiser.load_state_dict
    with machine():
        assert optimiser.state_dict is not before[0]
    assert (optimiser.state_dict, optimiser.load_state_dict) == before


#: A character model with checkpoints of its own, resumed as such programs do: it knows of torch
#: alone. Batches depend on the iteration, as the file of a resumed training does not hold torch's
#: generator.
PROGRAM = '''
import math, os, sys
import torch
from torch import nn
from torch.nn import functional as F

out_dir, init_from, max_iters = sys.argv[1], sys.argv[2], int(sys.argv[3])
block_size, vocab, batch, eval_interval = 8, 11, 4, 2
torch.set_num_threads(1)
torch.manual_seed(1337)
text = torch.randint(0, vocab, (300,), generator=torch.Generator().manual_seed(0))

def get_batch(split, number):
    generator = torch.Generator().manual_seed(number if split == "train" else 10**6 + number)
    start = torch.randint(len(text) - block_size - 1, (batch,), generator=generator)
    return (torch.stack([text[i:i + block_size] for i in start]),
            torch.stack([text[i + 1:i + 1 + block_size] for i in start]))

class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        wide = 4 * width
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2)
                   for y in self.attn(self.ln_1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.ln_2(x))

class Model(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(block_size, width)
        self.h = nn.ModuleList([Block(width, 2)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocab, bias=False)
        self.wte.weight = self.lm_head.weight
    def forward(self, idx, targets=None):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

model = Model()
decayed = [p for p in model.parameters() if p.dim() >= 2]
others = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1},
                               {"params": others, "weight_decay": 0.0}],
                              lr=1e-2, betas=(0.9, 0.95), eps=1e-4)
iter_num, best_val_loss = 0, 1e9
if init_from == "resume":
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location="cpu")
    state_dict = checkpoint["model"]
    for k in list(state_dict):
        if k.startswith("_orig_mod."):
            state_dict[k[len("_orig_mod."):]] = state_dict.pop(k)
    model.load_state_dict(state_dict)
    iter_num, best_val_loss = checkpoint["iter_num"], checkpoint["best_val_loss"]
    optimizer.load_state_dict(checkpoint["optimizer"])
    checkpoint = None

@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = torch.zeros(2)
    for k in range(2):
        losses[k] = model(*get_batch("val", k))[1].item()
    model.train()
    return losses.mean()

while True:
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 + 0.5 * (1 + math.cos(math.pi * iter_num / 8)) * 9e-3
    if iter_num % eval_interval == 0:
        val_loss = estimate_loss()
        best_val_loss = min(best_val_loss, val_loss)
        if iter_num > 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                        "iter_num": iter_num, "best_val_loss": best_val_loss},
                       os.path.join(out_dir, "ckpt.pt"))
    if iter_num >= max_iters:
        break
    for micro_step in range(2):
        logits, loss = model(*get_batch("train", 2 * iter_num + micro_step))
        (loss / 2).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(iter_num, loss.item().hex(), flush=True)
    iter_num += 1
'''


def run_program(path, way, *arguments):
    line = [sys.executable, "-m", "ipu.experiments.cli", "torch", "--policy", way, str(path)]
    done = subprocess.run([*line, *map(str, arguments)], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "way", pick(["fp16+sr+ln_f=f32"], *2 * [["fp16+sr+ln_f=f32", "mixed+sr", "mixed"]])
)
def test_a_program_resumes_its_own_checkpoint(tmp_path, way):
    """Unedited, in processes of its own: 4 and 4 iterations are 8, and so are the files."""
    path = tmp_path / "train.py"
    path.write_text(textwrap.dedent(PROGRAM))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    expected = run_program(path, way, whole, "scratch", 8)
    first = run_program(path, way, parts, "scratch", 4)
    second = run_program(path, way, parts, "resume", 8)
    assert len(expected) == 8
    assert first + second == expected
    a, b = (torch.load(folder / "ckpt.pt", weights_only=True) for folder in (whole, parts))
    assert json.dumps(a["optimizer"][resuming.KEY]) == json.dumps(b["optimizer"][resuming.KEY])
    for name, x in a["model"].items():
        assert torch.equal(x, b["model"][name]), name
    for i, slots in a["optimizer"]["state"].items():
        for name, x in slots.items():
            assert torch.equal(x, b["optimizer"]["state"][i][name]), (i, name)
