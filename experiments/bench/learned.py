"""Training steps of `ipu.learn` beside torch's own in binary32: a decoder written twice.

Two blocks of width 64 and four of width 128, of one text of embedded characters, by Adam. Both
forms have the same operations. Where torch is not installed there is nothing to measure.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from typing import Any

from fpsim.state.threads import get_threads
from ipu.experiments.bench.programs import Decoder
from ipu.experiments.bench.steps.decoders import EPSILON, RATE, embedded_text, learned_step
from ipu.experiments.bench.steps.torch_networks import classifying
from ipu.experiments.bench.timing import Call, Size, TimedCase
from ipu.ops.heap import keep_freed_memory

__all__ = ["SIZES", "cases"]

#: n is that of an operation: a step.
SIZES = Size(n=1, repeats=7), Size(n=1, repeats=1)
_DECODERS = [Decoder(64, 2, 1, 64), Decoder(128, 4, 1, 128)]
#: Policy, its format, whether rounding is stochastic, and whether operations are counted.
_WAYS = (
    ("fp16", "binary16", True, False), ("fp16", "binary16", True, True),
    ("fp32", "binary32", False, False),
)


def cases(size: Size, quick: bool) -> Iterator[TimedCase]:
    """Each decoder in each way; a figure is the time of a step."""
    if importlib.util.find_spec("torch") is None:
        return
    keep_freed_memory()
    for decoder in _DECODERS[: 1 if quick else None]:
        in_torch = _step_in_torch(decoder)
        for policy, fmt, sr, count in _WAYS:
            yield TimedCase(
                f"decoder of width {decoder.width}", fmt,
                partial(learned_step, decoder, policy, sr, count=count), in_torch, 1, size.repeats,
                "SR" if sr else "RNE", flags=True, data="counted" if count else "ipu.learn",
                peer=f"torch {version('torch')}",
            )


def _step_in_torch(sizes: Decoder) -> Call:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(get_threads())
    x, labels = map(torch.tensor, embedded_text(sizes))
    x = x.to(torch.float32)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = _decoder(torch.nn, sizes)
    optimiser = torch.optim.Adam(model.parameters(), lr=RATE, eps=EPSILON)
    return classifying(torch, model, optimiser, x, labels)


def _decoder(nn: Any, sizes: Decoder) -> Any:
    d = sizes.width

    class AllToAll(nn.Module):  # type: ignore[misc]
        """A block in which each row attends to all."""

        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.q, self.k, self.v, self.mix = (nn.Linear(d, d) for _ in range(4))
            self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

        def forward(self, x: Any) -> Any:
            h = self.norm1(x)
            attended = (self.q(h) @ self.k(h).T * d**-0.5).softmax(-1) @ self.v(h)
            x = x + self.mix(attended)
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    blocks = [AllToAll() for _ in range(sizes.layers)]
    return nn.Sequential(*blocks, nn.LayerNorm(d), nn.Linear(d, sizes.vocabulary))
