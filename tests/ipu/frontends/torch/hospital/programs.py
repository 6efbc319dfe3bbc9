"""Programs of the hospital: every model with every illness, in several sizes of the cause.

A program is the text of a user's file; nothing in it knows of the simulator. It is put together
from a model and from what makes it ill, so that a rule that fits one model only is noticed.
"""

from __future__ import annotations

from tests.ipu.frontends.hospital import Illness

__all__ = ["HEALTHY", "ILLNESSES", "MODELS", "program_text"]

_HEAD = """\
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed({seed})


class Stage(nn.Module):
    def forward(self, h):
        return h


{stage}
{model}

net = Net()
{optimiser}
{before}
for step in range({steps}):
    x, y = batch()
    optimiser.zero_grad()
    loss = objective(net(x), y){weight}
    loss.backward()
    {update}
    {after}
print("loss", loss.item())
"""

#: Each has `Net` with a `Stage` amidst, `batch` and `objective`.
MODELS = {
    "mlp": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.stage, self.fc2 = nn.Linear(12, 24), Middle(), nn.Linear(24, 3)

    def forward(self, x):
        return self.fc2(self.stage(torch.tanh(self.fc1(x))))


centres = torch.randn(3, 12)


def batch():
    y = torch.randint(0, 3, (24,))
    return centres[y] + 0.3 * torch.randn(24, 12), y


objective = F.cross_entropy
""",
    "cnn": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.stage, self.head = Middle(), nn.Linear(24, 2)

    def forward(self, x):
        h = F.max_pool2d(F.relu(self.conv(x)), 4)
        return self.head(self.stage(h.flatten(1)))


def batch():
    y = torch.randint(0, 2, (16,))
    x = 0.3 * torch.randn(16, 1, 8, 8)
    x[:, 0, 2:6, 2:6] += y.float().reshape(-1, 1, 1)
    return x, y


objective = F.cross_entropy
""",
    "attention": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.stage, self.head = nn.Linear(8, 24), Middle(), nn.Linear(8, 4)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q @ k.transpose(-2, -1) / 8 ** 0.5
        h = F.softmax(scores, dim=-1) @ v
        return self.head(self.stage(x + h)).flatten(0, 1)


def batch():
    x = torch.randn(6, 5, 8)
    return x, x.sum(-1).gt(0).long().flatten()


objective = F.cross_entropy
""",
    "recurrent": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 20), nn.Linear(20, 20)
        self.stage, self.head = Middle(), nn.Linear(20, 1)

    def forward(self, x):
        h = torch.zeros(x.shape[1], 20)
        for token in x:
            h = torch.tanh(self.inner(token) + self.outer(h))
        return self.head(self.stage(h)).squeeze(-1)


def batch():
    x = torch.randn(4, 20, 6)
    return x, x.sum((0, 2)) / 5


objective = F.mse_loss
""",
    "words": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.stage = nn.Embedding(40, 16), Middle()
        self.hidden, self.head = nn.Linear(16, 16), nn.Linear(16, 40)

    def forward(self, x):
        return self.head(F.gelu(self.hidden(self.stage(self.table(x).mean(1)))))


def batch():
    x = torch.randint(0, 40, (32, 3))
    return x, x.max(1).values


objective = F.cross_entropy
""",
}

_PLAIN = "class Middle(Stage):\n    pass\n"
_ADAM = "optimiser = torch.optim.Adam(net.parameters(), lr=0.01)"


def _stage(*lines: str) -> str:
    body = "\n".join(f"        {line}" for line in lines)
    return f"class Middle(Stage):\n    def forward(self, h):\n{body}\n"


_SCALED = """\
for p in net.parameters():
        p.grad /= {a}
    optimiser.step()"""
_CLIPPED = """\
norm = torch.sqrt(sum((p.grad * p.grad).sum() for p in net.parameters()))
    for p in net.parameters():
        p.grad *= torch.clamp(1.0 / norm, max=1.0)
    optimiser.step()"""
_EMA = """\
with torch.no_grad():
        for average, p in zip(averages, net.parameters()):
            average.mul_({a}).add_(p, alpha=1 - {a})"""
_METRIC = """\
with torch.no_grad():
        total = total + torch.full((16,), 1.0, dtype=torch.float16)"""

ILLNESSES = {
    "eps": Illness(
        ("eps|1e-0?\\d", "zero", "divi"), policy="fp16", sizes=("1e-8", "1e-9", "1e-10"),
        optimiser="optimiser = torch.optim.Adam(net.parameters(), lr=0.01, eps={a})",
        remedy="fp16+eps=1e-4",
    ),
    "scale too high": Illness(
        ("loss scale", "high"), weight=" * {a}", update=_SCALED,
        sizes=("2.0 ** 22", "2.0 ** 24", "2.0 ** 23"), well="2.0 ** 7",
    ),
    "scale too low": Illness(
        ("gradient", "zero|underflow|vanish"), weight=" * {a}",
        sizes=("1e-7", "3e-8", "5e-8"), well="1.0",
    ),
    "swallowed updates": Illness(
        ("update", "left|swallow"), policy="fp16", sizes=("1e-4", "3e-5", "6e-5"),
        optimiser="optimiser = torch.optim.SGD(net.parameters(), lr={a})", remedy="fp16+sr",
    ),
    "variance of a norm": Illness(
        ("stage", "mul|pow|square|\\*", "overflow|satur|largest"),
        stage=_stage("h = h * {a}", "square = (h * h).mean(-1, keepdim=True)",
                     "return h / torch.sqrt(square + 1e-3)"),
        sizes=("900.0", "1500.0", "1200.0"), remedy="mixed",
        well="1.0",
    ),
    "cancelled variance": Illness(
        ("stage", "sqrt|div|sub", "negative|invalid|zero|cancel"),
        stage=_stage("h = h * 0.02 + {a}", "mean = h.mean(0)", "square = (h * h).mean(0)",
                     "return (h - mean) / torch.sqrt(square - mean * mean)"),
        sizes=("30.0", "45.0", "38.0"), well="0.0",
    ),
    "softmax without maximum": Illness(
        ("stage", "exp", "overflow|satur|largest"),
        stage=_stage("e = torch.exp({a} * h * h + {a} * 0.5)",
                     "return h + e / e.sum(-1, keepdim=True)"),
        sizes=("30.0", "40.0", "35.0"), well="1.0",
    ),
    "long sum": Illness(
        ("stage", "add|sum", "absorb|unchanged|left"),
        stage=_stage("total = torch.zeros_like(h) + {a}", "for i in range(8):",
                     "    total = total + 0.1 * torch.sigmoid(h)", "return total - {a}"),
        sizes=("1024.0", "2048.0", "1500.0"), well="0.0",
    ),
    "clipping by a norm": Illness(
        ("clip|norm|square|mul|sum|sqrt", "overflow|satur|largest"), policy="fp16",
        weight=" * {a}", update=_CLIPPED, sizes=("2.0 ** 14", "2.0 ** 13", "2.0 ** 15"),
        optimiser="optimiser = torch.optim.SGD(net.parameters(), lr=0.1)",
        well="2.0 ** 2",
    ),
    "average of weights": Illness(
        ("average|add|mul|lerp", "absorb|unchanged|left|is 1"), policy="fp16",
        optimiser="optimiser = torch.optim.SGD(net.parameters(), lr=0.1)",
        before="averages = [p.detach().clone() for p in net.parameters()]", after=_EMA,
        sizes=("0.9999", "0.99995", "0.99993"), well="0.9",
    ),
    "metric": Illness(
        ("add", "absorb|unchanged|left"), before="total = torch.full((16,), {a}).half()",
        after=_METRIC, sizes=("2048.0", "4096.0", "3000.0"), well="0.0",
    ),
    "positions": Illness(
        ("integer|position|arange", "rounded|not hold|2048"),
        stage=_stage("position = torch.arange({a}, {a} + h.shape[-1]).to(h.dtype)",
                     "return h + 0.1 * torch.sin(position)"),
        sizes=("3000", "9000", "5001"), well="0",
    ),
    "large vocabulary": Illness(
        ("stage", "sum|add", "overflow|satur|largest"),
        stage=_stage("e = torch.exp(h + 5.0).repeat(1, {a}) if h.ndim == 2 else "
                     "torch.exp(h + 5.0).repeat(1, 1, {a})",
                     "return h + 10 * h / e.sum(-1, keepdim=True)"),
        sizes=("200", "400", "300"), well="1",
    ),
    "divisors of an optimiser": Illness(
        ("optimi", "divisor", "underflow"), policy="fp16", sizes=("1e-4", "2e-5", "5e-5"),
        optimiser="optimiser = torch.optim.Adam(net.parameters(), lr=1e-3, eps={a})",
        weight=" * 0.05", remedy="fp16+states=f32",
    ),
    "zero by zero": Illness(
        ("stage", "1e-(12|10|9|09)", "zero", "div"),
        stage=_stage("pad = h * 0", "return h + pad / (pad.norm(dim=-1, keepdim=True) + {a})"),
        sizes=("1e-12", "1e-9", "1e-10"), well="1e-3",
    ),
    "entropy of a softmax": Illness(
        ("stage", "softmax", "log", "underflow|zero"),
        stage=_stage("p = F.softmax({a} * torch.tanh(h), dim=-1)", "return h + p * torch.log(p)"),
        sizes=("30.0", "40.0", "35.0"), well="1.0",
    ),
    "diverges in binary32": Illness(
        ("diverge|grow", "binary32"), steps=10, sizes=("400.0", "1000.0", "700.0"),
        optimiser="optimiser = torch.optim.SGD(net.parameters(), lr={a}, momentum=0.9)",
        well="0.05",
    ),
    "cancelled variance beside an eps": Illness(
        ("sub of stage", "loses the digits"),
        stage=_stage("h = 4 * torch.tanh(h) + {a}", "mean = h.mean(0)", "square = (h * h).mean(0)",
                     "variance = torch.relu(square - mean * mean)",
                     "variance = variance + torch.full_like(mean, 3e-3)",
                     "return (h - mean) / torch.sqrt(variance)"),
        sizes=("120.0", "140.0", "130.0"), well="0.0",
    ),
    "bound of a logarithm": Illness(
        ("stage", "bound 0.9999999 of the clamp", "is 1", "log"),
        stage=_stage("p = torch.clamp(torch.sigmoid({a} + h), 1e-7, 1 - 1e-7)",
                     "return h + 0.01 * torch.log(1 - p)"),
        sizes=("12.0", "14.0", "13.0"), well="0.0",
    ),
}

_MASK = _stage("mask = torch.zeros_like(h)", "mask[..., ::2] = {a}",
               "return h + F.softmax(h + mask, dim=-1)")
_MASKS = _stage("mask = torch.zeros_like(h)", "mask[..., ::2] = {a}",
                "return h + F.softmax(h + mask + mask, dim=-1)")

#: Programs with nothing wrong: `names` must hold of the sentence, and no advice is given.
HEALTHY = {
    "plain": Illness(("^No ",)),
    "scaled": Illness(("^No ",), weight=" * {a}", update=_SCALED,
                      sizes=("2.0 ** 7", "2.0 ** 8", "2.0 ** 6")),
    "masked": Illness(("^No ",), stage=_MASK, sizes=("-1e9", "-1e4", "-1e30")),
    "masked twice": Illness(("^No ",), stage=_MASKS, sizes=("-1e9", "-6e4", "-1e30")),
    "half optimiser": Illness(
        ("^No ",), policy="fp16", sizes=("1e-3", "1e-2", "2e-3"),
        optimiser="optimiser = torch.optim.Adam(net.parameters(), lr=0.01, eps={a})",
    ),
    "decay of weights": Illness(
        ("^No ",), policy="fp16", sizes=("1e-5", "1e-6", "1e-4"),
        optimiser="optimiser = torch.optim.AdamW(net.parameters(), lr=0.01, eps=1e-3, "
                  "weight_decay={a})",
    ),
    "clipped": Illness(
        ("^No ",), policy="fp16", steps=10, sizes=("1.0", "0.5", "2.0"),
        optimiser="optimiser = torch.optim.SGD(net.parameters(), lr=1.0)",
        update="nn.utils.clip_grad_norm_(net.parameters(), {a})\n    optimiser.step()",
    ),
    "dropout": Illness(("^No ",), stage=_stage("return F.dropout(h, {a}, self.training)"),
                       sizes=("0.1", "0.5", "0.3")),
    "binary32": Illness(("^No ",), policy="fp32"),
}


def program_text(model: str, illness: Illness, size: str, seed: int = 0) -> str:
    """The file of a user."""
    text = _HEAD.format(
        seed=seed, steps=illness.steps, model=MODELS[model], stage=illness.stage or _PLAIN,
        optimiser=illness.optimiser or _ADAM, before=illness.before, weight=illness.weight,
        update=illness.update or "optimiser.step()", after=illness.after or "pass",
    )
    return text.replace("{a}", size)
